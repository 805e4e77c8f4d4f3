// What PyTorch's kernels on the CPU trust in their operands, looked at before a
// call: most check by themselves, those of a few operators do not, mostly
// because only autograd calls them. A tenant may call them too, with other
// values, and they read and write memory of somebody else's. Found by calling
// the operators with values out of range, on operands between pages that nobody
// may touch.
//
// So are values that make a call last without end: nobody else has the device
// until it is over.
#ifndef GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_

#include <memory>

#include "ATen/core/function_schema.h"
#include "gpu_worker/device/torch/call_runner.h"

namespace djinn::worker {

// For calls of the operator on the CPU, in any thread; null where its kernel
// needs no help, as for nearly all. Fails with OPERATOR_FAILED. The schema
// outlives it.
std::unique_ptr<ArgumentCheck> MakeValueGuard(
    const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_VALUE_GUARDS_H_
