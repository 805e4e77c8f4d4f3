// Finds multilayer perceptrons: projections with an activation between them,
// one of which may be a gate. A piece may begin or end within one.
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

class Finder {
 public:
  Finder(const Frame& frame, Regions* regions)
      : frame_(frame), regions_(regions) {}

  void Find() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      // A soft cap bounds scores and belongs to no MLP.
      if (regions_->IsFree(i) && frame_.op_class(i) == OpClass::kActivation &&
          !IsSoftCap(frame_, i)) {
        Around(i);
      }
    }
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (IsFreeProjection(i)) AddLoneDown(i);
    }
  }

 private:
  bool IsFreeProjection(int node) const {
    return regions_->IsFree(node) && IsProjection(frame_, node);
  }
  bool Passes(int node) const {
    return regions_->IsFree(node) && IsElementwise(frame_, node);
  }

  void Around(int activation) {
    const auto passes = [this](int node) { return Passes(node); };
    const auto projection = [this](int node) {
      return IsProjection(frame_, node);
    };
    const int up = NearestUp(activation);
    const int down = FindDownstream(frame_, activation, passes, projection, 24);
    const bool has_up = up >= 0 && IsFreeProjection(up);
    const bool has_down = down >= 0 && IsFreeProjection(down);
    if (!has_up && !has_down) return;
    // A head that keeps its width is a pooler, or a transformation before
    // scores.
    if (has_up ? !Widens(up) : !Widens(down)) return;
    Region region{"mlp", {{activation, "mlp.activation"}}, {}};
    const auto between_up = [&](int node) {
      return Passes(node) && (up < 0 || node > up);
    };
    const auto take = [&](int node, const char* role) {
      region.members.push_back({node, role});
    };
    if (has_up) take(up, "mlp.up");
    if (up >= 0) {
      for (const int node : Upstream(frame_, activation, between_up, 16)) {
        take(node, "mlp.activation");
      }
    }
    const auto between_down = [&](int node) {
      return Passes(node) && (down < 0 || node < down);
    };
    if (has_down || down < 0) {
      for (const int node : Downstream(frame_, activation, between_down, 16)) {
        take(node, "mlp.activation");
        // Takes the other side of the gate.
        for (const int other : frame_.Producers(node)) {
          if (IsFreeProjection(other) && other != up) {
            take(other, "mlp.gate");
          } else if (regions_->IsFree(other) && other > up && up >= 0 &&
                     (IsElementwise(frame_, other))) {
            take(other, "mlp.activation");
          }
        }
      }
    }
    if (has_down) {
      take(down, "mlp.down");
      const int bias = BiasBehind(down);
      if (bias >= 0) take(bias, "mlp.down");
      for (const int node : DropoutBehind(frame_, *regions_, down)) {
        take(node, "mlp.dropout");
      }
    }
    regions_->Add(std::move(region));
  }

  // Returns the in-place sum that adds the bias where PyTorch computes the
  // product without it.
  int BiasBehind(int projection) const {
    for (const int next : frame_.Consumers(projection)) {
      if (regions_->IsFree(next) && frame_.op(next) == "add_" &&
          frame_.Sizes(next, 1).size() == 1 && frame_.IsBound(next, 1)) {
        return next;
      }
    }
    return -1;
  }

  // Returns the nearest projection upstream, behind the activation's own
  // arithmetic.
  int NearestUp(int activation) const {
    return FindUpstream(
        frame_, activation,
        [this](int node) {  // Some mix neighbours in between.
          return (Passes(node) && frame_.op(node) != "cat") ||
                 frame_.op_class(node) == OpClass::kConvolution;
        },
        [this](int node) { return IsProjection(frame_, node); }, 24);
  }

  bool Widens(int projection) const {
    const auto in = frame_.Sizes(projection, RowsOperand(frame_, projection));
    const auto out = frame_.OutputSizes(projection);
    return !in.empty() && !out.empty() && in.back() != out.back();
  }

  // Adds a projection that narrows a value from before the run, and the sum
  // with rows of the same size. The projection that widened the value is in the
  // previous piece.
  void AddLoneDown(int node) {
    const int value = ProjectedValue(frame_, node);
    const auto in = frame_.Sizes(node, RowsOperand(frame_, node));
    const auto out = frame_.OutputSizes(node);
    if (!frame_.IsFromElsewhere(value) || in.empty() || out.empty() ||
        in.back() <= out.back()) {
      return;
    }
    const std::vector<int> dropout = DropoutBehind(frame_, *regions_, node);
    const bool summed =
        IsSummed(node) ||
        absl::c_any_of(dropout, [this](int next) { return IsSummed(next); });
    if (!summed) return;
    Region region{"mlp", {{node, "mlp.down"}}, {"piece"}};
    for (const int next : dropout) {
      region.members.push_back({next, "mlp.dropout"});
    }
    regions_->Add(std::move(region));
  }

  // Returns whether the node's output is added to rows of the same number and
  // width.
  bool IsSummed(int node) const {
    const int64_t elements = Elements(
        frame_.outputs(node).empty() ? nullptr : frame_.outputs(node)[0].view);
    return absl::c_any_of(frame_.Consumers(node), [&](int next) {
      const auto operands = frame_.operands(next);
      return frame_.op(next) == "add" && operands.size() == 2 &&
             Elements(operands[0].view) == elements &&
             Elements(operands[1].view) == elements;
    });
  }

  const Frame& frame_;
  Regions* const regions_;
};

class Mlp : public Pattern {
 public:
  absl::string_view name() const override { return "mlp"; }
  void Match(const Frame& frame, Regions* regions) const override {
    Finder(frame, regions).Find();
  }
};

}  // namespace

const Pattern& MlpPattern() {
  static const Mlp pattern;
  return pattern;
}

}  // namespace djinn::semantics
