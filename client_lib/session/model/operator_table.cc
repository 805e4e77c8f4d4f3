#include "client_lib/session/model/operator_table.h"

#include <utility>

namespace djinn {

OperatorTable& OperatorTable::Global() {
  static OperatorTable* const table = new OperatorTable;
  return *table;
}

uint32_t OperatorTable::Add(srg::Operator op) {
  MutexLock lock(&mu_);
  operators_.push_back(std::move(op));
  return static_cast<uint32_t>(operators_.size() - 1);
}

const srg::Operator& OperatorTable::Get(uint32_t operator_id) const {
  MutexLock lock(&mu_);
  return operators_[operator_id];
}

}  // namespace djinn
