// Implements the accelerator with CUDA, through PyTorch's allocator, streams
// and graphs.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "gpu_worker/device/cuda/accelerator.h"

namespace djinn::worker {

// Makes the accelerator of the GPU `ordinal`. Returns FailedPrecondition
// (DEVICE_UNAVAILABLE), which names what is missing: a driver that this CUDA
// can use, or the device.
absl::StatusOr<std::unique_ptr<Accelerator>> MakeCudaAccelerator(int ordinal);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_
