// Finds the step of an optimizer: calls on lists of parameters, fused steps,
// and in-place writes to parameters. Autograd has finished by then, so the step
// is one stretch of calls.
#include <algorithm>

#include "absl/strings/match.h"
#include "scheduler/semantics/patterns/patterns.h"

namespace djinn::semantics {
namespace {

// Returns whether the node updates a parameter in place by its gradient.
bool Steps(const Frame& frame, int node) {
  if (frame.op_class(node) == OpClass::kOptimizer) return true;
  if (frame.op_class(node) != OpClass::kPointwise ||
      !absl::EndsWith(frame.op(node), "_")) {
    return false;
  }
  const auto operands = frame.operands(node);
  return operands.size() > 1 && operands[0].written &&
         frame.IsParameter(operands[0].value) &&
         operands[0].view->sizes == operands[1].view->sizes;
}

// Returns whether the node creates state, such as a momentum, like a tensor
// from before the run.
bool MakesState(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  return (op == "zeros_like" || op == "clone") && frame.IsBound(node, 0) &&
         IsFloating(frame.operands(node)[0].view->data_type);
}

class Optimizer : public Pattern {
 public:
  absl::string_view name() const override { return "optimizer"; }

  void Match(const Frame& frame, Regions* regions) const override {
    int first = frame.node_count(), last = -1, states = 0;
    for (int i = 0; i < frame.node_count(); ++i) {
      states += MakesState(frame, i);
      if (!Steps(frame, i)) continue;
      first = std::min(first, i);
      last = i;
    }
    Region region{"optimizer", {}, {}};
    if (last < 0) {
      // The piece may only create state.
      if (states < 4 || states * 5 < frame.node_count() * 4) return;
      first = frame.node_count();
    }
    while (first > 0 && (MakesState(frame, first - 1) ||
                         (last >= 0 && frame.op(first - 1) == "clone"))) {
      --first;
    }
    for (int i = 0; i < frame.node_count(); ++i) {
      if (MakesState(frame, i) && (last < 0 || i < first)) {
        if (last < 0) region.members.push_back({i, "optimizer.state"});
        continue;
      }
      if (i < first || i > last) continue;
      region.members.push_back(
          {i, MakesState(frame, i) ? "optimizer.state" : "optimizer.step"});
    }
    regions->Add(std::move(region));
  }
};

}  // namespace

const Pattern& OptimizerPattern() {
  static const Optimizer pattern;
  return pattern;
}

}  // namespace djinn::semantics
