// Looks at the indices of a call before its operator does. On a GPU without
// waiting for it: those that are out of range are replaced by one that is in
// it, so that nothing is read or written beside the operands and no kernel
// asserts, and a flag says that there were some. Whoever waits for the run
// reads it. On the host the call fails at once.
#ifndef GPU_WORKER_DEVICE_TORCH_INDEX_CHECK_H_
#define GPU_WORKER_DEVICE_TORCH_INDEX_CHECK_H_

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
#include "gpu_worker/device/torch/index_table.h"

namespace djinn::worker {

// The failure of a call of `op` whose flag is set.
absl::Status IndexOutOfRange(absl::string_view op,
                             absl::Span<const IndexArgument> arguments);

class IndexCheck final : public ArgumentCheck {
 public:
  // `arguments`, which outlive this, are those of the calls' operator. `flag`
  // is a boolean of the operands' device, which is set and never cleared.
  IndexCheck(absl::Span<const IndexArgument> arguments, at::Tensor flag)
      : arguments_(arguments), flag_(std::move(flag)) {}
  // Of calls of `op` on the host. Stateless.
  IndexCheck(absl::Span<const IndexArgument> arguments, std::string op)
      : arguments_(arguments), op_(std::move(op)) {}

  // Fails (OPERATOR_FAILED) where it can be told without waiting: indices into
  // nothing, and in tensors of the host.
  absl::Status Check(torch::jit::Stack* arguments) override;

 private:
  absl::Status CheckArgument(const IndexArgument& argument,
                             torch::jit::Stack* stack);
  absl::Status CheckPositions(const IndexArgument& argument,
                              torch::jit::Stack* stack);
  // Values from `lowest` to less than `bound`, and `ignored`.
  absl::Status CheckIndices(const IndexArgument& argument, int64_t bound,
                            std::optional<int64_t> ignored,
                            at::Tensor* indices);
  absl::Status CheckValues(const IndexArgument& argument, at::Tensor* values);
  absl::Status CheckAscending(at::Tensor* values);
  absl::Status CheckWeights(at::Tensor* rows);
  absl::Status CheckMask(const at::Tensor& self, const at::Tensor& source,
                         at::Tensor* mask);
  // Sets the flag if any of `bad`, booleans, is true; an error if they are the
  // host's.
  absl::Status Flag(const at::Tensor& bad);
  // Makes bad values harmless in a copy of the distinct ones.
  absl::Status Replace(const at::Tensor& bad, int64_t harmless,
                       const at::Tensor& distinct, at::Tensor* tensor);

  const absl::Span<const IndexArgument> arguments_;
  const at::Tensor flag_;  // undefined on the host
  const std::string op_ = "a tensor of the host";
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_INDEX_CHECK_H_
