// Finds the backward pass. Autograd makes its calls without interruption, so
// that the pass is one stretch: from the first call that only autograd makes to
// the last that depends on one. If a piece begins in the middle of it, all its
// calls up to there are backward.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether only programs that ask for gradients have such a node.
bool IsOfTraining(const Frame& frame, int node) {
  const OpClass op_class = frame.op_class(node);
  return op_class == OpClass::kBackward || op_class == OpClass::kLoss ||
         op_class == OpClass::kOptimizer || IsForAutograd(frame.op(node));
}

bool ShowsTraining(const Frame& frame) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (IsOfTraining(frame, i)) return true;
  }
  return false;
}

// Returns whether another product reads the rows of the value and a matrix of
// these sizes. In that case a gradient is passed on to the weight's input.
bool IsPassedOn(const Frame& frame, int node, int value, int64_t rows,
                int64_t columns) {
  return absl::c_any_of(frame.value(value).readers, [&](int reader) {
    if (reader == node || frame.op(reader) != "mm") return false;
    const auto operands = frame.operands(reader);
    return operands.size() == 2 && operands[0].value == value &&
           operands[1].value != value && !frame.IsTurned(reader, 0) &&
           operands[1].view->sizes.size() == 2 &&
           operands[1].view->sizes[0] == rows &&
           operands[1].view->sizes[1] == columns;
  });
}

// Returns whether the node computes the gradient of a weight, which is a sum
// over rows: one operand is transposed, and the rows of both belong to the same
// data. Other products, such as a correlation matrix, look the same. Therefore
// either the graph must show elsewhere that gradients are requested, or the
// gradient must be passed on through a weight of the sizes that the node makes.
bool IsWeightGradient(const Frame& frame, int node, bool training) {
  if (frame.op(node) != "mm") return false;
  const auto operands = frame.operands(node);
  if (operands.size() != 2 || !frame.IsTurned(node, 0) ||
      IsTransposed(*operands[1].view) || frame.IsParameter(operands[0].value)) {
    return false;
  }
  const auto sizes = frame.OutputSizes(node);
  if (training || sizes.size() != 2) return training;
  // Either operand may be the gradient, depending on how the weight is stored.
  return IsPassedOn(frame, node, operands[0].value, sizes[0], sizes[1]) ||
         IsPassedOn(frame, node, operands[1].value, sizes[1], sizes[0]);
}

class Backward : public Pattern {
 public:
  absl::string_view name() const override { return "backward"; }

  void Match(const Frame& frame, Regions* regions) const override {
    const int count = frame.node_count();
    const bool training = ShowsTraining(frame);
    int first = count, last = -1;
    for (int i = 0; i < count; ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op_class(i) == OpClass::kBackward ||
          IsWeightGradient(frame, i, training)) {
        first = std::min(first, i);
        last = std::max(last, i);
      }
    }
    if (last < 0) return;
    first = Begin(frame, *regions, first);
    // Marks the nodes that depend on the pass, up to the next forward pass.
    std::vector<bool> depends(count, false);
    for (int i = first; i <= last; ++i) depends[i] = true;
    for (int i = last + 1; i < count && regions->IsFree(i); ++i) {
      for (const int producer : frame.Producers(i)) {
        depends[i] = depends[i] || depends[producer];
      }
      if (depends[i]) last = i;
    }
    Region region{"backward", {}, {}};
    for (int i = first; i <= last; ++i) {
      region.members.push_back({i, IsWeightGradient(frame, i, training)
                                       ? "backward.weight"
                                       : "backward.activation"});
    }
    regions->Add(std::move(region));
  }

 private:
  // Returns the first node of the pass whose first certain call is `evidence`.
  static int Begin(const Frame& frame, const Regions& regions, int evidence) {
    for (int i = evidence - 1; i >= 0; --i) {
      const bool forward = !regions.IsFree(i) || IsForAutograd(frame.op(i)) ||
                           frame.op(i) == "addmm" || frame.op(i) == "linear" ||
                           frame.op_class(i) == OpClass::kEmbedding ||
                           frame.op_class(i) == OpClass::kActivation ||
                           frame.op_class(i) == OpClass::kRandom ||
                           frame.op_class(i) == OpClass::kAttention ||
                           frame.op_class(i) == OpClass::kSoftmax ||
                           frame.op_class(i) == OpClass::kConvolution;
      if (!forward) continue;
      // Forward work ends no later than the last call that reads nothing of the
      // pass.
      int begin = i + 1;
      return begin;
    }
    return 0;
  }
};

}  // namespace

const Pattern& BackwardPattern() {
  static const Backward pattern;
  return pattern;
}

}  // namespace djinn::semantics
