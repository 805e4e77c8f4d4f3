// Turns CUDA's errors into statuses.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace djinn::worker {

// The reason of errors after which the process cannot use the GPU any more.
inline constexpr absl::string_view kDeviceBroken = "DEVICE_BROKEN";

// Returns whether the process can never use the GPU again after the error: a
// kernel accessed memory outside its own, asserted, or the device itself
// failed.
bool IsFatal(cudaError_t error);

// Returns Unavailable (DEVICE_BROKEN) for fatal errors, ResourceExhausted
// (OUT_OF_MEMORY) if memory is lacking, Internal (DEVICE_FAILED) otherwise. The
// text names `device`.
absl::Status StatusOfCuda(cudaError_t error, absl::string_view device);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
