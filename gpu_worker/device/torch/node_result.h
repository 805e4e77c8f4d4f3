// What an operator returned, as buffers.
#ifndef GPU_WORKER_DEVICE_TORCH_NODE_RESULT_H_
#define GPU_WORKER_DEVICE_TORCH_NODE_RESULT_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Turns the tensors that one call returned into results, in order. One thread;
// under c10::InferenceMode; may throw c10::Error.
class ResultCollector {
 public:
  // `operand_slots` are the slots the call could see, whose current buffers are
  // in `slots`. `uninitialised`: the operator returns memory it did not write
  // (aten::empty), to be zeroed. Results are the target's. All outlive the
  // collector; results are appended.
  ResultCollector(absl::Span<const uint32_t> operand_slots,
                  absl::Span<const std::shared_ptr<Buffer>> slots,
                  bool uninitialised, const TorchTarget& target,
                  std::vector<NodeResult>* results)
      : operand_slots_(operand_slots),
        slots_(slots),
        uninitialised_(uninitialised),
        target_(target),
        results_(results) {}

  // A result on an operand's storage names that slot; any other result gets a
  // storage of its own, whose bytes outside the result are zero. Unimplemented
  // (UNSUPPORTED_RESULT) for tensors that are not plain dense ones, or not on
  // the target's device.
  absl::Status Add(const at::Tensor& tensor);

 private:
  const absl::Span<const uint32_t> operand_slots_;
  const absl::Span<const std::shared_ptr<Buffer>> slots_;
  const bool uninitialised_;
  const TorchTarget& target_;
  std::vector<NodeResult>* const results_;
  // Storages of the results so far that are no operand's.
  std::vector<c10::StorageImpl*> fresh_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_NODE_RESULT_H_
