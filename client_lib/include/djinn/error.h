// What a PyTorch call on a remote tensor throws when Djinn, not PyTorch, is the
// one that fails: a lost worker, a closed session, a full window, a value whose
// computation failed earlier.
//
// Mistakes in the program's own call (wrong shapes or dtypes) throw plain
// c10::Error, as on any other device.
#ifndef CLIENT_LIB_INCLUDE_DJINN_ERROR_H_
#define CLIENT_LIB_INCLUDE_DJINN_ERROR_H_

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

class DJINN_API Error : public c10::Error {
 public:
  Error(c10::SourceLocation location, absl::Status status, std::string reason,
        std::string error_id)
      : c10::Error(location, std::string(status.message())),
        status_(std::move(status)),
        reason_(std::move(reason)),
        error_id_(std::move(error_id)) {}

  // Any failure of the djinn:: functions, with its reason and error id.
  static Error FromStatus(const absl::Status& status);

  const absl::Status& status() const { return status_; }
  // UPPER_SNAKE_CASE, such as WORKER_LOST or OPERATOR_FAILED.
  const std::string& reason() const { return reason_; }
  // Names the root error; every failure that derives from it has the same id.
  // Empty when the failure has no root error on a worker.
  const std::string& error_id() const { return error_id_; }
  // When it may be worth while to try again, from when it failed. Nothing when
  // trying again does not help, or nobody knows when it will.
  std::optional<absl::Duration> retry_after() const;

 private:
  absl::Status status_;
  std::string reason_;
  std::string error_id_;
};

// Called with each Error before a PyTorch call throws it, in the calling
// thread; it may throw something else instead. For bindings to other languages.
using ErrorTranslator = void (*)(const Error& error);
DJINN_API void SetErrorTranslator(ErrorTranslator translator);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_ERROR_H_
