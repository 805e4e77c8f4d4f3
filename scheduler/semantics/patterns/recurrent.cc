// Finds recurrent cells: one call for all steps, or each step as its gates.
// Gates are several sigmoids and tanhs of parts of one product, and the nodes
// that combine them.
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

bool IsGate(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  return op == "sigmoid" || op == "sigmoid_" || op == "tanh" || op == "tanh_";
}

// Returns whether the node works in place on some columns of a wider matrix.
// That is a gate, even if a piece shows no other one.
bool IsOfPart(const Frame& frame, int node) {
  const srg::TensorView& view = *frame.operands(node)[0].view;
  const size_t rank = view.sizes.size();
  return absl::EndsWith(frame.op(node), "_") && rank >= 2 &&
         view.strides[rank - 2] > view.sizes[rank - 1];
}

class Recurrent : public Pattern {
 public:
  absl::string_view name() const override { return "recurrent"; }

  void Match(const Frame& frame, Regions* regions) const override {
    // Gates by the storage that they are parts of.
    std::map<uint32_t, std::vector<int>> gates;
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op_class(i) == OpClass::kRecurrent) {
        Region region{"recurrent", {{i, "recurrent.whole"}}, {"whole"}};
        for (const int state : frame.Producers(i)) {
          if (frame.op_class(state) == OpClass::kFactory) {
            region.members.push_back({state, "recurrent.state"});
          }
        }
        regions->Add(std::move(region));
      } else if (IsGate(frame, i) && !frame.operands(i).empty()) {
        gates[frame.operands(i)[0].view->slot].push_back(i);
      }
    }
    std::vector<std::vector<int>> cells;
    for (auto& [slot, nodes] : gates) {
      if (nodes.size() >= 2 || IsOfPart(frame, nodes[0]))
        cells.push_back(std::move(nodes));
    }
    if (cells.empty()) return;
    Region region{"recurrent", {}, {"gates"}};
    for (const auto& cell : cells) AddCell(frame, *regions, cell, &region);
    regions->Add(std::move(region));
  }

 private:
  static void AddCell(const Frame& frame, const Regions& regions,
                      const std::vector<int>& gates, Region* region) {
    const auto works = [&](int node) {
      return regions.IsFree(node) &&
             (frame.op_class(node) == OpClass::kPointwise ||
              frame.op_class(node) == OpClass::kLayout || IsGate(frame, node));
    };
    const auto products = [&](int node) {
      return works(node) || (regions.IsFree(node) &&
                             (frame.op_class(node) == OpClass::kFactory ||
                              IsProjection(frame, node)));
    };
    for (const int gate : gates) {
      region->members.push_back({gate, "recurrent.gate"});
      for (const int node : Upstream(frame, gate, products, 8)) {
        region->members.push_back({node, "recurrent.product"});
      }
      for (const int node : Downstream(frame, gate, works, 32)) {
        region->members.push_back({node, "recurrent.state"});
      }
    }
  }
};

}  // namespace

const Pattern& RecurrentPattern() {
  static const Recurrent pattern;
  return pattern;
}

}  // namespace djinn::semantics
