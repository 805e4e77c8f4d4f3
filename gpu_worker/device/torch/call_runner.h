// Executes a node's call on buffers.
#ifndef GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_
#define GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/stack.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// The reason of a failure that the operator reports.
inline constexpr absl::string_view kOperatorFailed = "OPERATOR_FAILED";

// Checks a call's arguments before the operator runs.
class ArgumentCheck {
 public:
  virtual ~ArgumentCheck() = default;
  // Checks the arguments and may replace tensors among them. The caller is
  // under c10::InferenceMode. May throw c10::Error.
  virtual absl::Status Check(torch::jit::Stack* arguments) = 0;
};

// Turns the tensors that one call returned into results, in order. For one
// thread, under c10::InferenceMode; may throw c10::Error.
class ResultCollector {
 public:
  // `operand_slots` are the slots that the call could see; `slots` holds their
  // current buffers. `uninitialised` says that the operator returns memory that
  // it did not write (aten::empty); the collector zeroes it. Results lie on the
  // target. All arguments outlive the collector. Results are appended.
  ResultCollector(absl::Span<const uint32_t> operand_slots,
                  absl::Span<const std::shared_ptr<Buffer>> slots,
                  bool uninitialised, const TorchTarget& target,
                  std::vector<NodeResult>* results)
      : operand_slots_(operand_slots),
        slots_(slots),
        uninitialised_(uninitialised),
        target_(target),
        results_(results) {}

  // Appends a result. A result on an operand's storage names that slot. Any
  // other result gets a storage of its own, whose bytes outside the result are
  // zero. Returns Unimplemented (UNSUPPORTED_RESULT) for tensors that are not
  // plain and dense, or not on the target's device.
  absl::Status Add(const at::Tensor& tensor);

 private:
  const absl::Span<const uint32_t> operand_slots_;
  const absl::Span<const std::shared_ptr<Buffer>> slots_;
  const bool uninitialised_;
  const TorchTarget& target_;
  std::vector<NodeResult>* const results_;
  // Storages of the results so far that are not an operand's.
  std::vector<c10::StorageImpl*> fresh_;
};

// Executes the call of one node, as CompiledProgram::Execute(). Operands and
// results lie on the target. Errors: OPERATOR_FAILED with PyTorch's text,
// OUT_OF_MEMORY, INVALID_VIEW, INVALID_GENERATOR, UNSUPPORTED_RESULT, and the
// errors of `check`, which may be null.
absl::Status RunCall(const TorchCall& call, const TorchTarget& target,
                     const NodeInput& input, std::vector<NodeResult>* results,
                     ArgumentCheck* check = nullptr);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CALL_RUNNER_H_
