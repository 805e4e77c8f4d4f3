#include "scheduler/semantics/analysis/conclusion.h"

#include <array>

#include "scheduler/semantics/analysis/flow.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether the last projection computes few scores per row from one
// vector per row.
bool EndsInScores(const Frame& frame) {
  for (int i = frame.node_count() - 1; i >= 0; --i) {
    if (frame.op_class(i) == OpClass::kMatmul) {
      const auto out = frame.OutputSizes(i);
      const size_t left = frame.op(i) == "addmm" ? 1 : 0;
      const auto in = frame.Sizes(i, static_cast<int>(left));
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

}  // namespace djinn::semantics
