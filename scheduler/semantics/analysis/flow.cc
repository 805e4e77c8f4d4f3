#include "scheduler/semantics/analysis/flow.h"

#include <algorithm>
#include <array>
#include <set>

#include "scheduler/semantics/cost/roofline.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// The device on which paths are compared. Relative lengths hardly depend on the
// device.
constexpr DeviceSpeed kReference = {1e13, 1e12, 2e-6};

}  // namespace

std::vector<Edge> FindEdges(const Frame& frame,
                            const std::vector<NodeMeaning>& nodes) {
  const int count = frame.node_count();
  std::vector<Edge> edges;
  for (int i = 0; i < count; ++i) {
    std::set<int> seen;
    for (const Frame::Operand& operand : frame.operands(i)) {
      const Frame::Value& value = frame.value(operand.value);
      if (value.producer < 0 || !seen.insert(operand.value).second) continue;
      Edge edge;
      edge.producer = static_cast<uint32_t>(value.producer);
      edge.consumer = static_cast<uint32_t>(i);
      edge.view = operand.view;
      edge.size_bytes = static_cast<uint64_t>(Bytes(operand.view));
      const int64_t made = Bytes(value.view);
      edge.rate = made == 0 ? 0
                            : static_cast<double>(edge.size_bytes) /
                                  static_cast<double>(made);
      edges.push_back(edge);
    }
  }
  // Lengths of the longest paths up to the end of each node, and from its end
  // on.
  std::vector<double> before(count), after(count, 0);
  for (int i = 0; i < count; ++i) {
    before[i] = RooflineSeconds(nodes[i].cost, kReference);
  }
  const std::vector<double> own = before;
  double longest = 0;
  for (const Edge& edge : edges) {  // consumers ascend
    before[edge.consumer] = std::max(
        before[edge.consumer], before[edge.producer] + own[edge.consumer]);
  }
  for (const double path : before) longest = std::max(longest, path);
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    after[edge->producer] = std::max(
        after[edge->producer], after[edge->consumer] + own[edge->consumer]);
  }
  for (Edge& edge : edges) {
    const double path =
        before[edge.producer] + own[edge.consumer] + after[edge.consumer];
    edge.criticality = longest > 0 ? path / longest : 0;
  }
  return edges;
}

std::vector<Stage> FindStages(const Frame& frame,
                              const std::vector<SlotMeaning>& slots,
                              std::vector<NodeMeaning>* nodes) {
  std::vector<Stage> stages;
  std::set<uint32_t> read;  // slots that the stage has read
  for (int i = 0; i < frame.node_count(); ++i) {
    NodeMeaning& node = (*nodes)[i];
    const bool same = !stages.empty() &&
                      (node.phase == Phase::kUnspecified ||
                       stages.back().phase == Phase::kUnspecified ||
                       (node.phase == stages.back().phase &&
                        (node.modality == stages.back().modality ||
                         node.modality == Modality::kUnspecified ||
                         stages.back().modality == Modality::kUnspecified)));
    if (!same) {
      stages.emplace_back();
      stages.back().first_node = static_cast<uint32_t>(i);
      read.clear();
    }
    Stage& stage = stages.back();
    if (stage.phase == Phase::kUnspecified) stage.phase = node.phase;
    if (stage.modality == Modality::kUnspecified) {
      stage.modality = node.modality;
    }
    ++stage.node_count;
    stage.cost += node.cost;
    node.stage = static_cast<uint32_t>(stages.size() - 1);
    for (const Frame::Operand& operand : frame.operands(i)) {
      const uint32_t slot = operand.view->slot;
      if (!read.insert(slot).second) continue;
      const SlotMeaning& meaning = slots[slot];
      if (meaning.residency == Residency::kPersistentWeight) {
        stage.weight_bytes += meaning.size_bytes;
      } else if (meaning.residency == Residency::kStatefulKvCache) {
        stage.kv_cache_bytes += meaning.size_bytes;
      }
      const int producer = frame.value(operand.value).producer;
      if (producer < 0) continue;
      const uint32_t from = (*nodes)[producer].stage;
      if (from == node.stage) continue;
      stage.input_bytes += static_cast<uint64_t>(Bytes(operand.view));
      stage.inputs.push_back(from);
    }
  }
  for (Stage& stage : stages) {
    std::sort(stage.inputs.begin(), stage.inputs.end());
    stage.inputs.erase(std::unique(stage.inputs.begin(), stage.inputs.end()),
                       stage.inputs.end());
  }
  return stages;
}

uint64_t PeakBytes(const Frame& frame, const std::vector<SlotMeaning>& slots) {
  const size_t count = static_cast<size_t>(frame.node_count());
  if (count == 0) return 0;
  std::vector<uint64_t> created(count, 0), gone(count, 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotMeaning& slot = slots[i];
    const bool result = frame.graph().slots[i].kind == srg::Slot::Kind::kResult;
    created[result ? slot.first_node : 0] += slot.size_bytes;
    const bool stays = slot.residency == Residency::kPersistentWeight ||
                       slot.residency == Residency::kStatefulKvCache ||
                       (result && slot.first_node == slot.last_node);
    if (!stays) gone[slot.last_node] += slot.size_bytes;
  }
  uint64_t now = 0, peak = 0;
  for (size_t i = 0; i < count; ++i) {
    now += created[i];
    peak = std::max(peak, now);
    now -= gone[i];
  }
  return peak;
}

namespace {

// Returns whether the last projection computes few scores per row from one
// vector per row.
bool EndsInScores(const Frame& frame) {
  for (int i = frame.node_count() - 1; i >= 0; --i) {
    if (frame.op_class(i) == OpClass::kMatmul) {
      const auto out = frame.OutputSizes(i);
      const auto in = frame.Sizes(i, RowsOperand(frame, i));
      return IsProjection(frame, i) && out.size() == 2 && !in.empty() &&
             out[1] < in.back();
    }
  }
  return false;
}

TaskType FindTask(const Frame& frame, const Meaning& meaning) {
  switch (meaning.phase) {
    case Phase::kTraining:
      return TaskType::kTraining;
    case Phase::kLlmPrefill:
    case Phase::kLlmDecode:
    case Phase::kVisionDecoding:
      return TaskType::kGeneration;
    case Phase::kUnspecified:
      return TaskType::kUnspecified;
    default:
      return EndsInScores(frame) ? TaskType::kClassification
                                 : TaskType::kEmbedding;
  }
}

// Returns the enumerator that has most of the work. A node counts as its
// operations plus one.
template <typename Enum, size_t kCount>
Enum Dominant(const std::vector<NodeMeaning>& nodes,
              Enum NodeMeaning::* field) {
  std::array<uint64_t, kCount> work = {};
  for (const NodeMeaning& node : nodes) {
    work[static_cast<size_t>(node.*field)] += node.cost.flops + 1;
  }
  size_t best = 0;
  for (size_t i = 1; i < kCount; ++i) {
    if (work[i] > 0 && (best == 0 || work[i] > work[best])) best = i;
  }
  return static_cast<Enum>(best);
}

}  // namespace

void Conclude(const Frame& frame, Meaning* meaning) {
  meaning->stages = FindStages(frame, meaning->slots, &meaning->nodes);
  meaning->phase =
      Dominant<Phase, kPhaseCount>(meaning->nodes, &NodeMeaning::phase);
  meaning->modality =
      Dominant<Modality, 5>(meaning->nodes, &NodeMeaning::modality);
  meaning->task_type = FindTask(frame, *meaning);
}

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
    // A sum over rows is a bias's gradient if no other node of the pass reads
    // the sum.
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
