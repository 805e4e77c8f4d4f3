// The exception that a PyTorch call on a remote tensor throws if Djinn fails: a
// worker was lost, the session was closed, too much is outstanding, or a value
// cannot be read because its computation failed earlier.
//
//   try {
//     scores = model->forward(images).cpu();
//   } catch (const djinn::Error& error) {
//     if (error.reason() == "WORKER_LOST") BuildModelAgain();
//   }
//
// Mistakes in the call itself, such as wrong shapes or dtypes, throw plain
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

  // Converts the status of a djinn:: function to an error, with its reason and
  // error id.
  static Error FromStatus(const absl::Status& status);

  const absl::Status& status() const { return status_; }
  // Returns the reason in UPPER_SNAKE_CASE, such as WORKER_LOST or
  // OPERATOR_FAILED.
  const std::string& reason() const { return reason_; }
  // Returns the id of the root error, which all failures that derive from it
  // share. Returns an empty string if no root error on a worker caused the
  // failure.
  const std::string& error_id() const { return error_id_; }
  // Returns the delay after the failure from which a retry may succeed. Returns
  // nullopt if a retry does not help or the delay is unknown.
  std::optional<absl::Duration> retry_after() const;

 private:
  absl::Status status_;
  std::string reason_;
  std::string error_id_;
};

// A function that is called with each Error before a PyTorch call throws the
// Error, on the calling thread. It may throw another exception instead. It
// serves bindings to other languages.
using ErrorTranslator = void (*)(const Error& error);
DJINN_API void SetErrorTranslator(ErrorTranslator translator);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_ERROR_H_
