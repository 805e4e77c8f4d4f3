// Carries a node's call out on buffers.
#ifndef GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_
#define GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_

#include <vector>

#include "ATen/core/stack.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Of calls that failed for a reason of the operator's.
inline constexpr absl::string_view kOperatorFailed = "OPERATOR_FAILED";

// Looks at a call's arguments before the operator does.
class ArgumentCheck {
 public:
  virtual ~ArgumentCheck() = default;
  // May replace tensors among the arguments by others. Under
  // c10::InferenceMode; may throw c10::Error.
  virtual absl::Status Check(torch::jit::Stack* arguments) = 0;
};

// As CompiledProgram::Execute(), for the call of one node. Its operands and
// results are the target's. Errors: OPERATOR_FAILED with PyTorch's text,
// OUT_OF_MEMORY, INVALID_VIEW, INVALID_GENERATOR, UNSUPPORTED_RESULT, and what
// `check`, which may be null, says.
absl::Status RunCall(const TorchCall& call, const TorchTarget& target,
                     const NodeInput& input, std::vector<NodeResult>* results,
                     ArgumentCheck* check = nullptr);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_
