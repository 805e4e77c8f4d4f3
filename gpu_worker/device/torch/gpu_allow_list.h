// Which of the operators that may be sent to a worker
// (common/torch/allow_list.h) its GPU carries out. A GPU serves several tenants
// in one process, and kernels there trust what their operands hold: with others
// they read and write memory of somebody else's, or assert, which ends
// everybody's use of the GPU. What is not looked at before a call
// (index_table.h) is therefore refused.
#ifndef GPU_WORKER_DEVICE_TORCH_GPU_ALLOW_LIST_H_
#define GPU_WORKER_DEVICE_TORCH_GPU_ALLOW_LIST_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"

namespace djinn::worker {

// PermissionDenied (OPERATOR_REFUSED) with operator and cause. Operators of
// namespace aten whose names begin with an underscore, which PyTorch calls by
// itself, are refused unless they are known to check what they are given; of
// the others those whose kernels are known not to. Those of other namespaces
// are the affair of whoever loaded them.
absl::Status CheckAllowedOnGpu(const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GPU_ALLOW_LIST_H_
