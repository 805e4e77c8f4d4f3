// A backward pass. Autograd calls it in one go, so that it is a stretch of
// calls: from the first that only autograd makes to the last that depends on
// one. A piece that begins in the middle of it is all backward up to there.
#include <algorithm>
#include <vector>

#include "scheduler/semantics/patterns.h"
#include "scheduler/semantics/walk.h"

namespace djinn::semantics {
namespace {

bool IsTransposed(const srg::TensorView& view) {
  return view.sizes.size() == 2 && view.sizes[0] > 1 && view.sizes[1] > 1 &&
         view.strides[0] == 1 && view.strides[1] >= view.sizes[0];
}

// The gradient of a weight: (rows of gradients) transposed times rows.
bool IsWeightGradient(const Frame& frame, int node) {
  if (frame.op(node) != "mm") return false;
  const auto operands = frame.operands(node);
  return operands.size() == 2 && IsTransposed(*operands[0].view) &&
         !IsTransposed(*operands[1].view) &&
         !frame.IsParameter(operands[0].value);
}

class Backward : public Pattern {
 public:
  absl::string_view name() const override { return "backward"; }

  void Match(const Frame& frame, Regions* regions) const override {
    const int count = frame.node_count();
    int first = count, last = -1;
    for (int i = 0; i < count; ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op_class(i) == OpClass::kBackward ||
          IsWeightGradient(frame, i)) {
        first = std::min(first, i);
        last = std::max(last, i);
      }
    }
    if (last < 0) return;
    first = Begin(frame, *regions, first);
    // What depends on it, up to the next forward pass.
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
      region.members.push_back({i, IsWeightGradient(frame, i)
                                       ? "backward.weight"
                                       : "backward.activation"});
    }
    regions->Add(std::move(region));
  }

 private:
  // Where the pass begins whose first certain call is `evidence`.
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
      // Forward work ends no later than what reads nothing of the pass.
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
