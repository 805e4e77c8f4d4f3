// Checks, before a call, what kernels of torchvision and torchaudio trust:
// numbers of images, classes and channels among an operand's values, and sizes
// that one operand has by another. Their kernels then read and write other
// tenants' memory. Workers load these libraries by themselves.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_LIBRARY_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_LIBRARY_GUARDS_H_

#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/torch/call_runner.h"

namespace djinn::worker {

// Returns the check for calls of the operator, on any device and for use in any
// thread. Returns null for an operator that needs none. The check waits for the
// values and fails with OPERATOR_FAILED. The schema outlives it.
std::unique_ptr<ArgumentCheck> MakeLibraryGuard(
    const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_LIBRARY_GUARDS_H_
