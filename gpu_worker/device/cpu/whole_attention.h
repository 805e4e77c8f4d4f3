// Attention that a program spells out, carried out as a whole: scores as
// products of queries and keys, scaled, masked, put through softmax, and
// multiplied with values.
//
// Each call of such a chain but the last one makes a result whose bytes nobody
// writes, and that only says what they would be made of (AttentionParts). The
// last call knows it all, and carries it out in one of several ways, which are
// measured: one after the other, or by PyTorch's own operator for all of it,
// which never lays the scores down in memory (FlashAttention: Dao et al.,
// NeurIPS '22). Both take sums in an order of their own, so this is for fast
// mode alone.
//
// What is left unwritten nobody can see: each value within a chain is read by
// the next call and by nobody else, and dies in the run, or the chain is
// carried out as it is. An error that a call within it would have given is the
// last one's. Queries and keys are kept until then, also if nobody else needs
// them any more, so that whoever writes them gets a copy.
#ifndef GPU_WORKER_DEVICE_CPU_WHOLE_ATTENTION_H_
#define GPU_WORKER_DEVICE_CPU_WHOLE_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/cpu_tiers.h"
#include "gpu_worker/device/cpu/measured_choice.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_call.h"

namespace djinn::worker {

// What a value within a chain would be made of.
struct AttentionParts final : Unmade {
  struct Part {
    Operand operand;
    std::shared_ptr<Buffer> buffer;
  };
  Part queries;
  // Transposed.
  Part keys;
  double scale = 1;
  // Added to the scores.
  std::vector<Part> masks;
};

// How a chain is carried out by its last call: with all threads or with one,
// step by step or as a whole.
struct AttentionChoice {
  static constexpr size_t kOneThread = 1;
  static constexpr size_t kWhole = 2;
  MeasuredChoice<4> ways;
};

// A call's part in a chain. Immutable.
class AttentionStep {
 public:
  // Fewer scores are not worth the while.
  static constexpr int64_t kMinScores = 1 << 14;

  // By node: its part, if it has one. The calls are the structure's.
  static std::vector<std::optional<AttentionStep>> Match(
      const srg::Structure& structure, const std::vector<TorchCall>& calls);

  // Carries the call out, in fast mode: its result is appended to `results`
  // when that is OK. Nothing, and nothing has happened, where the call is to be
  // carried out as it is. `choice` is the last call's.
  std::optional<absl::Status> Run(const NodeInput& input, const CpuTiers& tiers,
                                  AttentionChoice* choice, Clock* clock,
                                  std::vector<NodeResult>* results) const;

 private:
  class Matcher;
  // (node, slot) as in NodeInput::run_ends.
  using End = std::pair<uint32_t, uint32_t>;
  struct Scores {
    Operand queries, keys;
    // Of the values within the chain.
    std::vector<End> ends;
  };
  struct Scale {
    std::variant<double, srg::FloatHole, srg::ScalarTensor> value;
    bool divides = false;
  };
  struct Mask {
    Operand mask;
  };
  struct Softmax {};
  struct Output {
    Operand values;
  };

  AttentionStep() = default;
  std::optional<absl::Status> Begin(const Scores& scores,
                                    const NodeInput& input,
                                    std::vector<NodeResult>* results) const;
  // The same with this step's part; and all of it carried out.
  absl::Status Extend(const AttentionParts& before, const NodeInput& input,
                      std::vector<NodeResult>* results) const;
  absl::Status Finish(const AttentionParts& parts, const NodeInput& input,
                      const CpuTiers& tiers, AttentionChoice* choice,
                      Clock* clock, std::vector<NodeResult>* results) const;
  // A result that is made of these, in this run.
  void Promise(std::shared_ptr<const AttentionParts> parts,
               std::vector<NodeResult>* results) const;

  std::variant<Scores, Scale, Mask, Softmax, Output> step_;
  // But for the first: where the value before it is.
  uint32_t from_ = 0;
  // As the client inferred it.
  srg::TensorView result_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_WHOLE_ATTENTION_H_
