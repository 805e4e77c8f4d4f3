// Checks values that PyTorch's CPU kernels trust, before a call. Most kernels
// check them; those of a few operators do not, mostly because only autograd
// calls them. A tenant may call them with other values, and they then read and
// write other tenants' memory. The operators were found by calling all of them
// with values out of range, on operands between protected pages.
//
// Checks values, too, that make a call last without end: no other session has
// the device until it is over.
#ifndef GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_

#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/torch/call_runner.h"

namespace djinn::worker {

// Returns the check for calls of the operator on the CPU, in any thread; null
// for nearly all operators, whose kernels check their operands. The check fails
// with OPERATOR_FAILED. The schema outlives it.
std::unique_ptr<ArgumentCheck> MakeValueGuard(
    const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_
