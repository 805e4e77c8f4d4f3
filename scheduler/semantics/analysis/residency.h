// How long each storage of a graph matters.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_

#include <vector>

#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// One for each slot; those of generators are left unspecified. An optimizer's
// state counts as weights: it stays from step to step.
std::vector<SlotMeaning> FindSlots(const Frame& frame, const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_RESIDENCY_H_
