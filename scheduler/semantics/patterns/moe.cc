// Finds mixtures of experts: a router that takes the best of a softmax, rows
// gathered for each expert, the expert's projections, and rows added back.
#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether the node gathers rows of a matrix by one column of the
// indices that nonzero finds.
bool GathersRows(const Frame& frame, int node) {
  const auto operands = frame.operands(node);
  if (frame.op(node) != "index" || operands.size() != 2 ||
      operands[0].view->sizes.size() != 2 ||
      !IsFloating(operands[0].view->data_type)) {
    return false;
  }
  const srg::TensorView& rows = *operands[1].view;
  if (rows.data_type != srg::DataType::kInt64 || rows.sizes.size() != 1) {
    return false;
  }
  // The columns may be stored one after the other.
  return rows.strides[0] > 1 ||
         (rows.storage_offset > 0 && rows.storage_offset == rows.sizes[0]);
}

// Returns whether the node compares an integer from before the run: the number
// of the next expert.
bool ComparesOne(const Frame& frame, int node) {
  return frame.op(node) == "eq" && frame.Sizes(node, 0).empty() &&
         frame.IsBound(node, 0) &&
         frame.operands(node)[0].view->data_type == srg::DataType::kInt64;
}

class Moe : public Pattern {
 public:
  absl::string_view name() const override { return "moe"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op(i) == "topk") {
        AddRouter(frame, i, regions);
      } else if (frame.op(i) == "index_add_") {
        AddExpert(frame, i, regions);
      }
    }
    if (HasExperts(*regions)) AddChoices(frame, regions);
    AddBeginnings(frame, regions);
  }

  static void AddChoices(const Frame& frame, Regions* regions) {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (regions->IsFree(i) && frame.op(i) == "nonzero") {
        AddChoice(frame, i, regions);
      }
    }
  }

 private:
  static void AddRouter(const Frame& frame, int top, Regions* regions) {
    const auto passes = [&](int node) {
      return regions->IsFree(node) &&
             (IsElementwise(frame, node) ||
              frame.op_class(node) == OpClass::kSoftmax ||
              frame.op(node) == "sigmoid");
    };
    const auto before = Upstream(frame, top, passes, 8);
    bool scored = false;
    Region region{"moe", {{top, "moe.router"}}, {}};
    for (const int node : before) {
      scored |= !IsElementwise(frame, node);
      region.members.push_back({node, "moe.router"});
    }
    if (!scored) return;
    const int projection = FindUpstream(frame, top, passes, [&](int node) {
      return IsProjection(frame, node);
    });
    if (projection >= 0) {
      region.members.push_back({projection, "moe.router"});
      AddSum(frame, *regions, projection, &region);
    }
    // Takes the weights of the chosen experts, and the choice of each row.
    const auto counts = [&](int node) {
      if (!regions->IsFree(node)) return false;
      const OpClass op_class = frame.op_class(node);
      return op_class == OpClass::kReduction || IsElementwise(frame, node) ||
             frame.op(node) == "scatter_" || frame.op(node) == "nonzero";
    };
    for (const int node : Downstream(frame, top, counts, 24)) {
      region.members.push_back({node, "moe.dispatch"});
      for (const int producer : frame.Producers(node)) {
        if (regions->IsFree(producer) &&
            frame.op_class(producer) == OpClass::kFactory) {
          region.members.push_back({producer, "moe.dispatch"});
        }
      }
    }
    regions->Add(std::move(region));
  }

  // Adds the tensor in which the experts' results are summed: zeros like the
  // routed rows.
  static void AddSum(const Frame& frame, const Regions& regions, int projection,
                     Region* region) {
    for (const int reader :
         frame.value(ProjectedValue(frame, projection)).readers) {
      if (regions.IsFree(reader) && frame.op(reader) == "zeros_like") {
        region->members.push_back({reader, "moe.combine"});
      }
    }
  }

  // Adds the search for an expert's rows among integers or booleans, and the
  // nodes that mark them.
  static void AddChoice(const Frame& frame, int node, Regions* regions) {
    const auto counts = [&](int other) {
      return regions->IsFree(other) &&
             (frame.op(other) == "eq" || frame.op(other) == "gt" ||
              frame.op(other) == "scatter_" ||
              frame.op_class(other) == OpClass::kFactory ||
              frame.op_class(other) == OpClass::kReduction);
    };
    Region region{"moe", {{node, "moe.dispatch"}}, {}};
    for (const int other : Upstream(frame, node, counts, 8)) {
      region.members.push_back({other, "moe.dispatch"});
    }
    regions->Add(std::move(region));
  }

  static void AddExpert(const Frame& frame, int back, Regions* regions) {
    const auto works = [&](int node) {
      return regions->IsFree(node) &&
             (IsElementwise(frame, node) || IsProjection(frame, node) ||
              frame.op_class(node) == OpClass::kActivation ||
              frame.op_class(node) == OpClass::kIndexing ||
              frame.op_class(node) == OpClass::kFactory);
    };
    const auto before = Upstream(frame, back, works, 24);
    Region region{"moe", {{back, "moe.combine"}}, {}};
    bool projects = false;
    for (const int node : before) {
      projects |= IsProjection(frame, node);
      region.members.push_back({node, "moe.expert"});
    }
    if (projects) regions->Add(std::move(region));
  }

  // Adds the beginning of an expert in a piece that ends within it: gathered
  // and projected rows.
  static void AddBeginnings(const Frame& frame, Regions* regions) {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i) || frame.op(i) != "index" ||
          frame.OutputSizes(i).size() != 2 || frame.Sizes(i, 0).size() != 2) {
        continue;
      }
      const auto works = [&](int node) {
        return regions->IsFree(node) &&
               (IsElementwise(frame, node) || IsProjection(frame, node) ||
                frame.op_class(node) == OpClass::kActivation);
      };
      const auto after = Downstream(frame, i, works, 12);
      bool projects = false, activates = false;
      for (const int node : after) {
        projects |= IsProjection(frame, node);
        activates |= frame.op_class(node) == OpClass::kActivation;
      }
      if (!projects || !activates) continue;
      Region region{"moe", {{i, "moe.dispatch"}}, {}};
      for (const int node : after)
        region.members.push_back({node, "moe.expert"});
      regions->Add(std::move(region));
    }
  }
};

}  // namespace

const Pattern& MoePattern() {
  static const Moe pattern;
  return pattern;
}

bool HasExperts(const Regions& regions) {
  return absl::c_any_of(regions.all(), [](const Region& region) {
    return absl::c_any_of(region.members, [](const Member& member) {
      return member.role == "moe.router" || member.role == "moe.combine";
    });
  });
}

void FindPiecesOfExperts(const Frame& frame, Regions* regions) {
  for (size_t i = 0; i < regions->all().size(); ++i) {
    const Region& region = regions->all()[i];
    if (region.pattern != "mlp") continue;
    const int first = region.members.front().node;
    if (frame.Sizes(first, 0).size() == 2 && frame.IsBound(first, 0)) {
      regions->Rename(static_cast<int>(i), "moe");
    }
  }
  Moe::AddChoices(frame, regions);
  const bool combines = HasExperts(*regions);
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!regions->IsFree(i)) continue;
    if (GathersRows(frame, i) || (combines && ComparesOne(frame, i))) {
      regions->Add({"moe", {{i, "moe.dispatch"}}, {"piece"}});
    }
  }
}

}  // namespace djinn::semantics
