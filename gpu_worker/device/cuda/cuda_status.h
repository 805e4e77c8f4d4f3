// CUDA's errors as statuses.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace djinn::worker {

// The reason of statuses after which the process can do nothing with the GPU.
inline constexpr absl::string_view kDeviceBroken = "DEVICE_BROKEN";

// Whether the process can never use the GPU again after it: a kernel left its
// memory, asserted, or the device itself failed.
bool IsFatal(cudaError_t error);

// Unavailable (DEVICE_BROKEN) for fatal ones, ResourceExhausted (OUT_OF_MEMORY)
// where memory lacks, Internal (DEVICE_FAILED) otherwise. `device` is named.
absl::Status StatusOfCuda(cudaError_t error, absl::string_view device);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
