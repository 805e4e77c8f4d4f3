// Finds fusions, where values from different sources become one: rows of one
// source put into the places that another reserves for them, features
// multiplied with each other, and the scores of one side's vectors against the
// other's.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

bool Projects(const Frame& frame, const Regions& regions, int node) {
  return regions.IsFree(node) &&
         (IsProjection(frame, node) || IsElementwise(frame, node) ||
          frame.op_class(node) == OpClass::kActivation);
}

// Returns whether the node is the sum around a block, with a value from before
// the block. A projector has no such sum; an activation's sums read one
// projection only.
bool IsAroundBlock(const Frame& frame, int node) {
  const auto operands = frame.operands(node);
  if (frame.op(node) != "add" || operands.size() != 2 ||
      operands[0].view->sizes != operands[1].view->sizes) {
    return false;
  }
  const int first = std::min(frame.Producer(node, 0), frame.Producer(node, 1));
  const int last = std::max(frame.Producer(node, 0), frame.Producer(node, 1));
  if (first < 0) return true;
  const auto passes = [&](int other) {
    return IsElementwise(frame, other) ||
           frame.op_class(other) == OpClass::kActivation;
  };
  return first != last && FindUpstream(frame, last, passes, [first](int other) {
                            return other == first;
                          }) < 0;
}

// Returns whether the node normalizes rows that were merged directly before it,
// which an encoder's last norm does not.
bool IsNormOfMerged(const Frame& frame, const Regions& regions, int node) {
  if (frame.op_class(node) != OpClass::kNormalization) return false;
  const int merged = frame.Producer(node, 0);
  return merged >= 0 && regions.IsFree(merged) &&
         frame.op_class(merged) == OpClass::kLayout;
}

class Fusion : public Pattern {
 public:
  absl::string_view name() const override { return "fusion"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op(i) == "masked_scatter" || frame.op(i) == "masked_scatter_") {
        AddScatter(frame, i, regions);
      } else if (IsInteraction(frame, i)) {
        AddInteraction(frame, i, regions);
      } else if (IsComparison(frame, i)) {
        AddComparison(frame, i, regions);
      }
    }
  }

 private:
  // Adds the projections that lead to the scattered rows.
  static void AddScatter(const Frame& frame, int node, Regions* regions) {
    Region region{"fusion", {{node, "fusion.join"}}, {"scatter"}};
    const int rows = static_cast<int>(frame.operands(node).size()) - 1;
    int made = frame.Producer(node, rows);
    if (made >= 0 && !Projects(frame, *regions, made)) {
      made = ProjectionBehind(frame, *regions, made);
    }
    if (made >= 0 && Projects(frame, *regions, made)) {
      region.members.push_back({made, "fusion.projection"});
      for (const int before : ProjectorBefore(frame, *regions, made)) {
        region.members.push_back({before, "fusion.projection"});
      }
    }
    regions->Add(std::move(region));
  }

  // Returns whether the node multiplies every feature with every other one.
  static bool IsInteraction(const Frame& frame, int node) {
    const auto operands = frame.operands(node);
    return frame.op(node) == "bmm" && operands.size() == 2 &&
           operands[0].value == operands[1].value;
  }

  static void AddInteraction(const Frame& frame, int node, Regions* regions) {
    Region region{"fusion", {{node, "fusion.interaction"}}, {"interaction"}};
    for (const int next : frame.Consumers(node)) {
      if (!regions->IsFree(next) ||
          frame.op_class(next) != OpClass::kIndexing) {
        continue;
      }
      region.members.push_back({next, "fusion.interaction"});
      for (const int places : frame.Producers(next)) {
        if (regions->IsFree(places) &&
            frame.op_class(places) == OpClass::kFactory) {
          region.members.push_back({places, "fusion.interaction"});
        }
      }
    }
    regions->Add(std::move(region));
  }

  // Returns whether the node is a product of two matrices that were both scaled
  // to rows of length one, neither of which is a weight.
  static bool IsComparison(const Frame& frame, int node) {
    const absl::string_view op = frame.op(node);
    if (op != "matmul" && op != "mm") return false;
    if (frame.Sizes(node, 0).size() != 2 || frame.Sizes(node, 1).size() != 2) {
      return false;
    }
    for (int k = 0; k < 2; ++k) {
      const int made = frame.Producer(node, k);
      if (made < 0 ||
          (frame.op(made) != "div" && !MakesScaledUnitRows(frame, made))) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace

std::vector<int> ProjectorBefore(const Frame& frame, const Regions& regions,
                                 int projection) {
  return Upstream(
      frame, projection,
      [&](int node) {
        return (Projects(frame, regions, node) &&
                !IsAroundBlock(frame, node)) ||
               IsNormOfMerged(frame, regions, node);
      },
      12);
}

int ProjectionBehind(const Frame& frame, const Regions& regions, int node) {
  if (IsProjection(frame, node)) return node;
  const auto hands_on = [&](int other) {
    const OpClass op_class = frame.op_class(other);
    return op_class == OpClass::kLayout || op_class == OpClass::kPooling ||
           op_class == OpClass::kNormalization ||
           regions.pattern(other) == "norm";
  };
  if (!hands_on(node)) return -1;
  return FindUpstream(
      frame, node, hands_on,
      [&](int other) { return IsProjection(frame, other); }, 16);
}

bool MakesUnitRows(const Frame& frame, int node) {
  const auto operands = frame.operands(node);
  if (frame.op(node) != "div" || operands.size() != 2 ||
      operands[0].view->sizes.size() < 2) {
    return false;
  }
  const int length = frame.Producer(node, 1);
  if (length < 0 || frame.Sizes(node, 1).empty() ||
      frame.Sizes(node, 1).back() != 1) {
    return false;
  }
  const auto measures = [&](int other) {
    return frame.op_class(other) == OpClass::kReduction ||
           IsElementwise(frame, other);
  };
  std::vector<int> before = Upstream(frame, length, measures, 8);
  before.push_back(length);
  const auto finds = [&](const auto& wanted) {
    return absl::c_any_of(before, wanted);
  };
  const bool norm = finds(
      [&](int other) { return absl::StrContains(frame.op(other), "norm"); });
  const bool root = finds([&](int other) {
    return frame.op(other) == "sqrt" || frame.op(other) == "pow";
  });
  if (!norm && !root) return false;
  return finds([&](int other) {
           return frame.op_class(other) == OpClass::kReduction;
         }) &&
         finds([&](int other) {
           return absl::c_any_of(frame.operands(other), [&](const auto& read) {
             // The squares may be in the previous piece.
             const bool squares = frame.op(other) == "sum" &&
                                  frame.IsFromElsewhere(read) &&
                                  frame.IsFromElsewhere(operands[0]) &&
                                  read.view->sizes == operands[0].view->sizes;
             return read.value == operands[0].value || squares;
           });
         });
}

bool MakesScaledUnitRows(const Frame& frame, int node) {
  if (MakesUnitRows(frame, node)) return true;
  const auto operands = frame.operands(node);
  if (frame.op(node) != "mul" || operands.empty() || operands.size() > 2) {
    return false;
  }
  for (size_t k = 0; k < operands.size(); ++k) {
    const int made = frame.Producer(node, static_cast<int>(k));
    const bool number =
        operands.size() == 1 || operands[1 - k].view->sizes.empty();
    if (number && made >= 0 && MakesUnitRows(frame, made)) return true;
  }
  return false;
}

std::vector<int> ComparedBefore(const Frame& frame, const Regions& regions,
                                int node) {
  std::vector<int> before = Upstream(
      frame, node,
      [&](int other) {
        return regions.IsFree(other) && !IsProjection(frame, other) &&
               (IsElementwise(frame, other) ||
                frame.op_class(other) == OpClass::kReduction);
      },
      24);
  // If there are two projections, the first one belongs to the encoder.
  const size_t scaling = before.size();
  for (size_t k = 0; k <= scaling; ++k) {
    for (const int made : frame.Producers(k == scaling ? node : before[k])) {
      if (regions.IsFree(made) && IsProjection(frame, made) &&
          !absl::c_linear_search(before, made)) {
        before.push_back(made);
      }
    }
  }
  return before;
}

void AddComparison(const Frame& frame, int node, Regions* regions) {
  Region region{"fusion", {{node, "fusion.join"}}, {"comparison"}};
  for (const int before : ComparedBefore(frame, *regions, node)) {
    region.members.push_back({before, "fusion.projection"});
  }
  const auto follows = [&](int other) {
    return regions->IsFree(other) && IsElementwise(frame, other);
  };
  for (const int after : Downstream(frame, node, follows, 8)) {
    region.members.push_back({after, "fusion.join"});
  }
  regions->Add(std::move(region));
}

const Pattern& FusionPattern() {
  static const Fusion pattern;
  return pattern;
}

}  // namespace djinn::semantics
