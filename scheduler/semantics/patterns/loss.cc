// Finds losses: the call itself, the preparation of scores and targets directly
// before it, and the reduction to one number.
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/walk.h"

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
        return regions->IsFree(node) && Prepares(frame, node);
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
    AddBeginnings(frame, regions);
  }

 private:
  // Adds the beginning of a loss in a piece that ends before the loss itself:
  // the log-softmax of scores, as autograd splits it, and the targets, one
  // integer per row.
  static void AddBeginnings(const Frame& frame, Regions* regions) {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i) || frame.op(i) != "_log_softmax" ||
          !frame.Consumers(i).empty()) {
        continue;
      }
      Region region{"loss", {{i, "loss.prepare"}}, {"piece"}};
      const auto sizes = frame.OutputSizes(i);
      for (int k = 0; k < frame.node_count(); ++k) {
        if (!regions->IsFree(k) || !IsTargets(frame, k, sizes)) continue;
        region.members.push_back({k, "loss.prepare"});
        for (const int before : Upstream(frame, k, [&](int other) {
               return regions->IsFree(other) && Prepares(frame, other);
             })) {
          region.members.push_back({before, "loss.prepare"});
        }
      }
      regions->Add(std::move(region));
    }
  }

  static bool IsTargets(const Frame& frame, int node,
                        absl::Span<const int64_t> scores) {
    const auto targets = frame.OutputSizes(node);
    return Prepares(frame, node) && frame.Consumers(node).empty() &&
           scores.size() == 2 && targets.size() == 1 &&
           targets[0] == scores[0] &&
           frame.outputs(node)[0].view->data_type == srg::DataType::kInt64;
  }

  static bool Prepares(const Frame& frame, int node) {
    const OpClass op_class = frame.op_class(node);
    return op_class == OpClass::kSoftmax || op_class == OpClass::kLayout ||
           op_class == OpClass::kFactory || frame.op(node) == "remainder";
  }
};

}  // namespace

const Pattern& LossPattern() {
  static const Loss pattern;
  return pattern;
}

}  // namespace djinn::semantics
