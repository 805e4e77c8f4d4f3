// What the kernels of fused optimisers do not check themselves
// (operand_guards.h).
#ifndef GPU_WORKER_DEVICE_TORCH_OPTIMIZER_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_OPTIMIZER_GUARDS_H_

#include "absl/status/status.h"
#include "gpu_worker/device/torch/named_arguments.h"

namespace djinn::worker {

absl::Status CheckFusedOptimizer(const NamedArguments& arguments);
// On a GPU besides, where lists are gone through by the first one's length, and
// steps, scales and rates are read as one number each.
absl::Status CheckFusedAdamOnGpu(const NamedArguments& arguments);
absl::Status CheckFusedSgdOnGpu(const NamedArguments& arguments);
absl::Status CheckFusedAdagradOnGpu(const NamedArguments& arguments);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_OPTIMIZER_GUARDS_H_
