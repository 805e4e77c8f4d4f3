// Numbers the operators of the process. Capture names an operator by a small
// integer, which the sender turns into name, overload and schema hash.
//
// The table only grows. Thread-safe; never destroyed.
#ifndef CLIENT_LIB_SESSION_MODEL_OPERATOR_TABLE_H_
#define CLIENT_LIB_SESSION_MODEL_OPERATOR_TABLE_H_

#include <cstdint>
#include <deque>

#include "common/base/mutex.h"
#include "common/srg/graph.h"

namespace djinn {

class OperatorTable {
 public:
  static OperatorTable& Global();

  // Returns the new operator's number.
  uint32_t Add(srg::Operator op);
  // The reference stays valid for ever.
  const srg::Operator& Get(uint32_t operator_id) const;

 private:
  mutable Mutex mu_;
  std::deque<srg::Operator> operators_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_OPERATOR_TABLE_H_
