// Fuses attention that a program spells out: products of queries and keys,
// scaled, masked, put through softmax and multiplied with values become one
// call of PyTorch's scaled_dot_product_attention, which never stores the scores
// in memory (FlashAttention: Dao et al., NeurIPS '22). It takes sums in another
// order, so only fast mode uses it. The pass is the same on every device that
// PyTorch knows.
//
// Each call of such a chain except the last returns a buffer without memory
// that holds what the last call needs (AttentionParts). The last call executes
// the whole chain.
//
// A chain is fused only if no other call reads the values within it and they
// are destroyed in the same run; otherwise it is executed call by call. An
// error of a call within the chain becomes the last call's. Queries and keys
// are kept until then, so a later write copies them.
#ifndef GPU_WORKER_DEVICE_TORCH_ATTENTION_PASS_H_
#define GPU_WORKER_DEVICE_TORCH_ATTENTION_PASS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// The operands of a chain that its calls have collected so far.
struct AttentionParts final : Unmade {
  struct Part {
    Operand operand;
    std::shared_ptr<Buffer> buffer;
  };
  // Queries, transposed keys, and masks that are added to the scores.
  std::vector<Part> parts;
};

// A call's step in a chain. Immutable.
class AttentionStep {
 public:
  // The fewest scores that are worth fusing.
  static constexpr int64_t kMinScores = 1 << 14;

  // Returns each node's step in a chain, or nothing for nodes outside all
  // chains. `calls` are the graph's. `target` outlives the steps.
  static std::vector<std::optional<AttentionStep>> Match(
      const srg::Graph& graph, const std::vector<TorchCall>& calls,
      const TorchTarget& target);

  // Executes the call in fast mode and appends its result on success. Returns
  // nothing and does nothing if the call is to be executed plainly.
  std::optional<absl::Status> Run(const NodeInput& input,
                                  std::vector<NodeResult>* results) const;

 private:
  class Matcher;
  struct Chain;

  AttentionStep() = default;
  std::optional<absl::Status> Extend(const NodeInput& input,
                                     std::vector<NodeResult>* results) const;

  std::shared_ptr<const Chain> chain_;
  // The operands that this call adds to the chain.
  std::vector<Operand> brings_;
  // The slot of the value before this one; nothing for the first call.
  std::optional<uint32_t> from_;
  bool last_ = false;
  // The result as the client inferred it.
  srg::TensorView result_;
  const TorchTarget* target_ = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_ATTENTION_PASS_H_
