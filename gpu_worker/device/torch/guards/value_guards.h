// Checks, before a call, values that PyTorch's CPU kernels trust although a
// program's own mistake may bring them there: with them, PyTorch would crash.
// We found these operators by calling all operators with values out of range,
// on operands between protected pages. Operators that only autograd calls are
// not checked, nor are values that only an attacker gives, such as pivots of no
// decomposition: they harm the tenant's own process, or, in a shared one,
// tenants that trust each other (docs/design/isolation.md).
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_VALUE_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_VALUE_GUARDS_H_

#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/torch/call_runner.h"

namespace djinn::worker {

// Returns the check for calls of the operator on the CPU, for use in any
// thread. Returns null for nearly all operators, whose kernels check their
// operands. The check fails with OPERATOR_FAILED. The schema outlives it.
std::unique_ptr<ArgumentCheck> MakeValueGuard(
    const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_VALUE_GUARDS_H_
