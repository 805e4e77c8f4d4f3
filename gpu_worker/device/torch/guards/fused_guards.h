// Checks the operands of attention and of fused optimisers, whose kernels trust
// them (operand_guards.h).
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_FUSED_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_FUSED_GUARDS_H_

#include "absl/status/status.h"
#include "gpu_worker/device/torch/guards/named_arguments.h"

namespace djinn::worker {

absl::Status CheckAttention(const NamedArguments& arguments);
absl::Status CheckFusedAttentionForward(const NamedArguments& arguments);
absl::Status CheckFusedAttentionBackward(const NamedArguments& arguments);
// Checks operators that take the number of heads as an argument.
absl::Status CheckHeads(const NamedArguments& arguments);
// Checks them for a GPU's kernels.
absl::Status CheckHeadsOnGpu(const NamedArguments& arguments);

absl::Status CheckFusedOptimizer(const NamedArguments& arguments);
// Check optimisers for a GPU, whose kernels go through all lists by the first
// one's length, and read steps, scales and rates as one number each.
absl::Status CheckFusedAdamOnGpu(const NamedArguments& arguments);
absl::Status CheckFusedSgdOnGpu(const NamedArguments& arguments);
absl::Status CheckFusedAdagradOnGpu(const NamedArguments& arguments);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_FUSED_GUARDS_H_
