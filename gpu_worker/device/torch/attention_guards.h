// What the kernels of attention do not check themselves (operand_guards.h).
#ifndef GPU_WORKER_DEVICE_TORCH_ATTENTION_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_ATTENTION_GUARDS_H_

#include "absl/status/status.h"
#include "gpu_worker/device/torch/named_arguments.h"

namespace djinn::worker {

absl::Status CheckAttention(const NamedArguments& arguments);
absl::Status CheckFusedAttentionForward(const NamedArguments& arguments);
absl::Status CheckFusedAttentionBackward(const NamedArguments& arguments);
// Of operators that know heads by their number.
absl::Status CheckHeads(const NamedArguments& arguments);
// On a GPU besides.
absl::Status CheckHeadsOnGpu(const NamedArguments& arguments);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_ATTENTION_GUARDS_H_
