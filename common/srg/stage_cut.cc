#include "common/srg/stage_cut.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::srg {
namespace {

constexpr int64_t kNever = -1;
constexpr uint32_t kNone = 0xffffffff;

// Calls `visit(uint32_t& slot, bool changes)` for each slot that the node
// names. A slot may be visited several times.
template <typename NodeType, typename Visitor>
void ForEachSlot(NodeType&& node, Visitor&& visit) {
  const auto visit_list = [&](auto& list) {
    for (auto& entry : list) {
      if (auto* view = std::get_if<TensorView>(&entry))
        visit(view->slot, false);
    }
  };
  for (auto& argument : node.arguments) {
    if (auto* view = std::get_if<TensorView>(&argument)) {
      visit(view->slot, false);
    } else if (auto* list =
                   std::get_if<std::vector<TensorListEntry>>(&argument)) {
      visit_list(*list);
    } else if (auto* generator = std::get_if<GeneratorSlot>(&argument)) {
      visit(generator->slot, true);
    }
  }
  for (auto& result : node.results) {
    if (auto* view = std::get_if<TensorView>(&result)) {
      visit(view->slot, true);
    } else if (auto* unknown = std::get_if<UnknownResult>(&result)) {
      visit(unknown->slot, true);
    }
  }
  for (auto& slot : node.writes) visit(slot, true);
  for (auto& slot : node.overwrites) visit(slot, true);
  if (node.implicit_generator_slot.has_value()) {
    visit(*node.implicit_generator_slot, true);
  }
}

// Maps numbers of the whole graph to numbers of the part, in order of
// appearance.
class Renumbering {
 public:
  explicit Renumbering(std::vector<uint32_t>* taken) : taken_(*taken) {}

  uint32_t Of(uint32_t number) {
    if (number >= numbers_.size()) numbers_.resize(number + 1, kNone);
    if (numbers_[number] == kNone) {
      numbers_[number] = static_cast<uint32_t>(taken_.size());
      taken_.push_back(number);
    }
    return numbers_[number];
  }

 private:
  std::vector<uint32_t>& taken_;
  std::vector<uint32_t> numbers_;
};

void RenumberHoles(Renumbering* floats, Renumbering* scalars, Node* node) {
  for (Argument& argument : node->arguments) {
    if (auto* hole = std::get_if<FloatHole>(&argument)) {
      hole->index = floats->Of(hole->index);
    } else if (auto* scalar = std::get_if<ScalarTensor>(&argument)) {
      scalar->hole = scalars->Of(scalar->hole);
    } else if (auto* list =
                   std::get_if<std::vector<TensorListEntry>>(&argument)) {
      for (TensorListEntry& entry : *list) {
        if (auto* scalar = std::get_if<ScalarTensor>(&entry)) {
          scalar->hole = scalars->Of(scalar->hole);
        }
      }
    }
  }
}

}  // namespace

absl::Status CheckStageOrder(const Graph& graph,
                             absl::Span<const uint32_t> stage_of_node) {
  // For each slot: the stage that changed it last, and the last of the stages
  // that named it.
  std::vector<int64_t> changed(graph.slots.size(), kNever);
  std::vector<int64_t> named(graph.slots.size(), kNever);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    const auto stage = static_cast<int64_t>(stage_of_node[node]);
    const Node& call = graph.nodes[node];
    int64_t later = kNever;
    ForEachSlot(call, [&](uint32_t slot, bool changes) {
      later = std::max(later, changes ? named[slot] : changed[slot]);
    });
    if (later > stage) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition, "NOT_IN_STAGES",
          absl::StrCat("node ", node, " (",
                       graph.operators[call.operator_index].FullName(),
                       ") of stage ", stage, " comes after stage ", later));
    }
    ForEachSlot(call, [&](uint32_t slot, bool changes) {
      named[slot] = std::max(named[slot], stage);
      if (changes) changed[slot] = stage;
    });
  }
  return absl::OkStatus();
}

StageCut CutStage(const Graph& graph, absl::Span<const uint32_t> stage_of_node,
                  uint32_t stage) {
  StageCut cut;
  std::vector<bool> used(graph.slots.size(), false);
  std::vector<bool> before(graph.slots.size(), false);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (stage_of_node[node] > stage) continue;
    std::vector<bool>& seen = stage_of_node[node] < stage ? before : used;
    ForEachSlot(graph.nodes[node],
                [&](uint32_t slot, bool) { seen[slot] = true; });
  }
  std::vector<uint32_t> slots(graph.slots.size(), kNone);
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    if (!used[slot]) continue;
    slots[slot] = static_cast<uint32_t>(cut.slots.size());
    cut.slots.push_back(slot);
    Slot& kind = cut.graph.slots.emplace_back(graph.slots[slot]);
    const bool is_made =
        kind.kind == Slot::Kind::kCreated || kind.kind == Slot::Kind::kResult;
    if (is_made && before[slot]) kind = {Slot::Kind::kBound, 0};
  }
  std::vector<uint32_t> operators;
  Renumbering new_operators(&operators);
  Renumbering floats(&cut.float_holes);
  Renumbering scalars(&cut.scalar_tensor_holes);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (stage_of_node[node] != stage) continue;
    Node& call = cut.graph.nodes.emplace_back(graph.nodes[node]);
    call.operator_index = new_operators.Of(call.operator_index);
    ForEachSlot(call, [&](uint32_t& slot, bool) { slot = slots[slot]; });
    RenumberHoles(&floats, &scalars, &call);
  }
  for (const uint32_t number : operators) {
    cut.graph.operators.push_back(graph.operators[number]);
  }
  cut.graph.float_hole_count = static_cast<uint32_t>(cut.float_holes.size());
  cut.graph.scalar_tensor_hole_count =
      static_cast<uint32_t>(cut.scalar_tensor_holes.size());
  return cut;
}

}  // namespace djinn::srg
