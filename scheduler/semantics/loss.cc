// A loss: the call itself, what it takes of the scores and targets just before,
// and what makes one number of it.
#include "scheduler/semantics/patterns.h"
#include "scheduler/semantics/walk.h"

namespace djinn::semantics {
namespace {

class Loss : public Pattern {
 public:
  absl::string_view name() const override { return "loss"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (frame.op_class(i) != OpClass::kLoss || !regions->IsFree(i)) continue;
      Region region{"loss", {{i, "loss.value"}}, {}};
      const auto prepares = [&](int node) {
        const OpClass op_class = frame.op_class(node);
        return regions->IsFree(node) &&
               (op_class == OpClass::kSoftmax || op_class == OpClass::kLayout ||
                op_class == OpClass::kFactory || frame.op(node) == "remainder");
      };
      for (const int node : Upstream(frame, i, prepares)) {
        region.members.push_back({node, "loss.prepare"});
      }
      const auto reduces = [&](int node) {
        return regions->IsFree(node) && frame.OutputSizes(node).empty() &&
               (frame.op_class(node) == OpClass::kReduction ||
                frame.op_class(node) == OpClass::kPointwise);
      };
      for (const int node : Downstream(frame, i, reduces, 8)) {
        region.members.push_back({node, "loss.reduce"});
      }
      regions->Add(std::move(region));
    }
  }
};

}  // namespace

const Pattern& LossPattern() {
  static const Loss pattern;
  return pattern;
}

}  // namespace djinn::semantics
