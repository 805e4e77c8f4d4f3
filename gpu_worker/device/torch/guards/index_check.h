// Checks the indices of a call before its operator runs. On a GPU the check
// does not wait for the device: it replaces an index that is out of range by
// one that is in range, so that no kernel asserts or accesses memory outside
// its operands, and sets a flag. The thread that waits for the run reads the
// flag. On the host the call fails at once.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_CHECK_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/stack.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/guards/index_table.h"

namespace djinn::worker {

// Returns the failure of a call of `op` whose flag is set.
absl::Status IndexOutOfRange(absl::string_view op,
                             absl::Span<const IndexArgument> arguments);

class IndexCheck final : public ArgumentCheck {
 public:
  // `arguments` are those of the calls' operator and outlive this. `flag` is a
  // boolean on the operands' device, which the check sets and never clears.
  IndexCheck(absl::Span<const IndexArgument> arguments, at::Tensor flag)
      : arguments_(arguments), flag_(std::move(flag)) {}

  // Fails (OPERATOR_FAILED) if the error is known without waiting: for indices
  // into an empty dimension, and indices in tensors of the host.
  absl::Status Check(torch::jit::Stack* arguments) override;

 private:
  absl::Status CheckArgument(const IndexArgument& argument,
                             torch::jit::Stack* stack);
  absl::Status CheckPositions(const IndexArgument& argument,
                              torch::jit::Stack* stack);
  // Allows values from `lowest` to less than `bound`, and `ignored`.
  absl::Status CheckIndices(const IndexArgument& argument, int64_t bound,
                            std::optional<int64_t> ignored,
                            at::Tensor* indices);
  absl::Status CheckValues(const IndexArgument& argument, at::Tensor* values);
  absl::Status CheckAscending(at::Tensor* values);
  absl::Status CheckWeights(at::Tensor* rows);
  absl::Status CheckMask(const at::Tensor& self, const at::Tensor& source,
                         at::Tensor* mask);
  // Sets the flag if any of `bad`, which are booleans, is true. Returns an
  // error instead if they lie on the host.
  absl::Status Flag(const at::Tensor& bad);
  // Replaces bad values in a copy of the distinct elements.
  absl::Status Replace(const at::Tensor& bad, int64_t harmless,
                       const at::Tensor& distinct, at::Tensor* tensor);

  const absl::Span<const IndexArgument> arguments_;
  const at::Tensor flag_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_INDEX_CHECK_H_
