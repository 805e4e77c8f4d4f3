// Implements the accelerator with CUDA, through PyTorch's allocator, streams
// and graphs.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu_worker/device/cuda/accelerator.h"

namespace djinn::worker {

struct CudaAcceleratorOptions {
  int ordinal = 0;
  // Where other tenants' processes use the GPU: the most memory that this one
  // takes for values and temporaries. What the driver hands out is then zeroed
  // before anything reads it, because another process may have used it. 0: the
  // process takes what it needs.
  uint64_t process_bytes = 0;
};

// Makes the accelerator of the GPU. Returns FailedPrecondition
// (DEVICE_UNAVAILABLE), which names what is missing: a driver that this CUDA
// can use, the device, or an allocator that can zero what it takes.
absl::StatusOr<std::unique_ptr<Accelerator>> MakeCudaAccelerator(
    const CudaAcceleratorOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_ACCELERATOR_H_
