// How values move through a graph: edges and which of them hold everything
// up, stages, and the memory that is taken.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_

#include <vector>

#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// In order of consumers. `nodes` have their costs.
std::vector<Edge> FindEdges(const Frame& frame,
                            const std::vector<NodeMeaning>& nodes);

// Sets the nodes' stages. A node of no phase belongs to the stage around it.
std::vector<Stage> FindStages(const Frame& frame,
                              const std::vector<SlotMeaning>& slots,
                              std::vector<NodeMeaning>* nodes);

// Weights and caches stay; all else goes after its last use, unless nothing
// uses it: then it is what the graph is for.
uint64_t PeakBytes(const Frame& frame, const std::vector<SlotMeaning>& slots);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_FLOW_H_
