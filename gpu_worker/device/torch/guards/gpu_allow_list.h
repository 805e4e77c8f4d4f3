// Decides which of the operators that clients may send to a worker
// (common/torch/allow_list.h) a GPU executes. A GPU serves several tenants in
// one process, and its kernels trust their operands' values: with wrong values
// they read and write other tenants' memory, or assert, which ends the
// process's use of the GPU. The list therefore refuses operators whose values
// are not checked before a call (index_table.h).
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_GPU_ALLOW_LIST_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_GPU_ALLOW_LIST_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"

namespace djinn::worker {

// Returns PermissionDenied (OPERATOR_REFUSED) with operator and cause. Refuses
// operators of namespace aten whose names begin with an underscore, which
// PyTorch calls itself, unless they are known to check their operands. Refuses
// the other operators of aten only if their kernels are known not to check
// their operands. Allows operators of other namespaces.
absl::Status CheckAllowedOnGpu(const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_GPU_ALLOW_LIST_H_
