// Describes how values move through a graph: edges and their criticality,
// stages, peak memory, and how long contents matter.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_

#include <vector>

#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

// Returns the edges, ordered by consumer. `nodes` must have their costs.
std::vector<Edge> FindEdges(const Frame& frame,
                            const std::vector<NodeMeaning>& nodes);

// Returns the stages and sets the stage of each node. A node without a phase
// belongs to the stage around it.
std::vector<Stage> FindStages(const Frame& frame,
                              const std::vector<SlotMeaning>& slots,
                              std::vector<NodeMeaning>* nodes);

// Returns the peak memory of a run in bytes. Weights and caches stay for the
// whole run. Every other value is released after its last use; an unused value
// is an output and stays.
uint64_t PeakBytes(const Frame& frame, const std::vector<SlotMeaning>& slots);

// Summarizes a whole graph from the phases of its nodes: computes stages,
// phase, modality and task type again from the nodes and slots of `meaning`,
// which describes the frame's graph.
void Conclude(const Frame& frame, Meaning* meaning);

// Returns the meaning of each slot: how long the contents of its storage
// matter. Slots of generators stay unspecified. An optimizer's state counts as
// weights, because it stays from step to step.
std::vector<SlotMeaning> FindSlots(const Frame& frame, const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_
