// Finds how long the contents of each storage of a graph matter.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_

#include <vector>

#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// Returns the meaning of each slot; slots of generators stay unspecified. An
// optimizer's state counts as weights, because it stays from step to step.
std::vector<SlotMeaning> FindSlots(const Frame& frame, const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_
