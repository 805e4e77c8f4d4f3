#include "scheduler/semantics/analysis/flow.h"

#include <algorithm>
#include <set>

#include "scheduler/semantics/cost/roofline.h"

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
  std::vector<uint64_t> born(count, 0), gone(count, 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotMeaning& slot = slots[i];
    const bool result = frame.graph().slots[i].kind == srg::Slot::Kind::kResult;
    born[result ? slot.first_node : 0] += slot.size_bytes;
    const bool stays = slot.residency == Residency::kPersistentWeight ||
                       slot.residency == Residency::kStatefulKvCache ||
                       (result && slot.first_node == slot.last_node);
    if (!stays) gone[slot.last_node] += slot.size_bytes;
  }
  uint64_t now = 0, peak = 0;
  for (size_t i = 0; i < count; ++i) {
    now += born[i];
    peak = std::max(peak, now);
    now -= gone[i];
  }
  return peak;
}

}  // namespace djinn::semantics
