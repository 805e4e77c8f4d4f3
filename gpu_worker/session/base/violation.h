// Makes the status that ends the stream of a client that breaks the protocol.
#ifndef GPU_WORKER_SESSION_BASE_VIOLATION_H_
#define GPU_WORKER_SESSION_BASE_VIOLATION_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"

namespace djinn::worker {

inline absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   what);
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_BASE_VIOLATION_H_
