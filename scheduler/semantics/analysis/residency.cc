#include "scheduler/semantics/analysis/residency.h"

#include <algorithm>

namespace djinn::semantics {
namespace {

void Measure(const Frame& frame, std::vector<SlotMeaning>* slots) {
  std::vector<bool> seen(slots->size(), false);
  const auto touch = [&](uint32_t slot, const srg::TensorView* view, int node) {
    SlotMeaning& meaning = (*slots)[slot];
    if (!seen[slot]) meaning.first_node = static_cast<uint32_t>(node);
    seen[slot] = true;
    meaning.last_node = static_cast<uint32_t>(node);
    if (view == nullptr) return;
    const auto extent = srg::ExtentBytes(*view);
    if (extent.ok()) meaning.size_bytes = std::max(meaning.size_bytes, *extent);
  };
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Operand& operand : frame.operands(i)) {
      touch(operand.view->slot, operand.view, i);
    }
    for (const Frame::Output& output : frame.outputs(i)) {
      touch(frame.value(output.value).slot, output.view, i);
    }
  }
}

// Marks keys and values from before the run that attention reads, and those
// that new ones are joined with or written into.
void MarkCaches(const Frame& frame, const Regions& regions,
                std::vector<bool>* caches) {
  for (const Region& region : regions.all()) {
    const bool cache = region.pattern == "kv_cache";
    if (!cache && !region.HasTrait("cached")) continue;
    for (const Member& member : region.members) {
      if (member.role == "kv_cache.update") {
        (*caches)[frame.operands(member.node)[0].view->slot] = true;
        for (const Frame::Output& output : frame.outputs(member.node)) {
          (*caches)[frame.value(output.value).slot] = true;
        }
      }
      const bool fused = member.role == "attention.fused";
      if (!fused && member.role != "attention.scores" &&
          member.role != "attention.values") {
        continue;
      }
      const auto operands = frame.operands(member.node);
      for (size_t k = 1; k < std::min<size_t>(operands.size(), fused ? 3 : 2);
           ++k) {
        if (frame.IsBound(member.node, static_cast<int>(k))) {
          (*caches)[operands[k].view->slot] = true;
        }
      }
    }
  }
}

// Marks the gradients that a backward pass leaves for each weight, and those
// that an optimizer reads beside the weights and its state.
void MarkGradients(const Frame& frame, const Regions& regions,
                   std::vector<bool>* gradients) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (regions.pattern(i) == "optimizer" &&
        frame.op_class(i) == OpClass::kOptimizer) {
      for (const Frame::Operand& operand : frame.operands(i)) {
        if (!operand.written && !frame.IsParameter(operand.value) &&
            frame.value(operand.value).producer < 0) {
          (*gradients)[operand.view->slot] = true;
        }
      }
    }
    if (regions.pattern(i) != "backward") continue;
    if (regions.role(i) == "backward.weight" ||
        frame.op(i) == "embedding_dense_backward") {
      for (const Frame::Output& output : frame.outputs(i)) {
        (*gradients)[frame.value(output.value).slot] = true;
      }
      continue;
    }
    // The outputs from `first` on are the gradients of the weight and the bias.
    const size_t first = frame.op(i) == "native_batch_norm_backward" ||
                                 frame.op(i) == "native_layer_norm_backward" ||
                                 frame.op(i) == "convolution_backward"
                             ? 1
                             : frame.outputs(i).size();
    for (size_t k = first; k < frame.outputs(i).size(); ++k) {
      (*gradients)[frame.value(frame.outputs(i)[k].value).slot] = true;
    }
    // A bias's gradient is a sum over rows that no other node of the pass
    // reads.
    if (frame.op(i) == "sum" && !frame.outputs(i).empty() &&
        frame.Consumers(i).empty()) {
      (*gradients)[frame.value(frame.outputs(i)[0].value).slot] = true;
    }
  }
}

bool IsNormWeight(const Frame& frame, const Regions& regions, int node,
                  const Frame::Operand& operand) {
  return regions.pattern(node) == "norm" && operand.view->sizes.size() == 1 &&
         frame.value(operand.value).producer < 0;
}

}  // namespace

std::vector<SlotMeaning> FindSlots(const Frame& frame, const Regions& regions) {
  const srg::Graph& graph = frame.graph();
  std::vector<SlotMeaning> slots(graph.slots.size());
  Measure(frame, &slots);
  std::vector<bool> weights(slots.size()), caches(slots.size());
  std::vector<bool> gradients(slots.size());
  MarkCaches(frame, regions, &caches);
  MarkGradients(frame, regions, &gradients);
  for (int i = 0; i < frame.value_count(); ++i) {
    if (frame.IsParameter(i)) weights[frame.value(i).slot] = true;
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Operand& operand : frame.operands(i)) {
      if (IsNormWeight(frame, regions, i, operand)) {
        weights[operand.view->slot] = true;
      }
    }
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (graph.slots[i].kind == srg::Slot::Kind::kGenerator) continue;
    slots[i].size_bytes =
        std::max(slots[i].size_bytes, graph.slots[i].created_bytes);
    slots[i].residency = weights[i]     ? Residency::kPersistentWeight
                         : caches[i]    ? Residency::kStatefulKvCache
                         : gradients[i] ? Residency::kGradient
                                        : Residency::kEphemeralActivation;
  }
  return slots;
}

}  // namespace djinn::semantics
