// Turns PyTorch's exceptions into statuses.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_ERROR_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_ERROR_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {

// Returns the exception being handled as a status; call it in a catch block.
// Out of memory becomes ResourceExhausted (OUT_OF_MEMORY), and the failure of a
// decomposition InvalidArgument (LINALG_FAILED). PyTorch's internal errors and
// exceptions of unknown type become Internal, all others InvalidArgument, both
// with `reason`. The text is PyTorch's without its C++
// backtrace.
absl::Status StatusOfCurrentException(absl::string_view reason);

// Runs `body`, which returns a status and may throw.
template <typename Body>
absl::Status CatchTorch(absl::string_view reason, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return StatusOfCurrentException(reason);
  }
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_ERROR_H_
