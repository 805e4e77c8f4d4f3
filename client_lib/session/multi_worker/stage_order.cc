#include "client_lib/session/multi_worker/stage_order.h"

#include <algorithm>

namespace djinn {
namespace {

// Returns the slots of tensors among the node's arguments, each once.
std::vector<uint32_t> SlotsOf(const v1::Node& node) {
  std::vector<uint32_t> slots;
  for (const v1::Argument& argument : node.arguments()) {
    if (argument.has_tensor()) slots.push_back(argument.tensor().slot());
    for (const auto& entry : argument.tensors().entries()) {
      if (entry.has_view()) slots.push_back(entry.view().slot());
    }
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

}  // namespace

StageOrder::StageOrder(const v1::Graph& graph, const v1::StagePlan& plan) {
  std::vector<double> remaining(graph.nodes_size(), kUnknown);
  std::vector<bool> kept(graph.slots_size());
  for (const v1::StagePlan::Stage& stage : plan.stages()) {
    const int known =
        std::min(stage.nodes_size(), stage.remaining_seconds_size());
    for (int i = 0; i < known; ++i) {
      const double seconds = stage.remaining_seconds(i);
      if (stage.nodes(i) < remaining.size() && seconds >= 0) {
        remaining[stage.nodes(i)] = seconds;
      }
    }
    for (const uint32_t slot : stage.kept_slots()) {
      if (slot < kept.size()) kept[slot] = true;
    }
  }
  slots_.resize(kept.size());
  for (size_t node = 0; node < remaining.size(); ++node) {
    for (const uint32_t slot : SlotsOf(graph.nodes(static_cast<int>(node)))) {
      if (slot >= kept.size() || !kept[slot]) continue;
      slots_[slot].remaining_seconds.push_back(remaining[node]);
    }
  }
}

StageOrder::Use StageOrder::Next(uint32_t slot) {
  Use use;
  if (slot >= slots_.size() || slots_[slot].remaining_seconds.empty()) {
    return use;
  }
  Slot& used = slots_[slot];
  if (!begun_ || used.used == used.remaining_seconds.size()) {
    for (Slot& each : slots_) each.used = 0;
    begun_ = use.begins_run = true;
  }
  use.remaining_seconds = used.remaining_seconds[used.used++];
  return use;
}

}  // namespace djinn
