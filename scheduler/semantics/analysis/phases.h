// Finds the phase of a program that each node belongs to, and the kind of data
// it processes.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns the origin of each node. `sources` is the result of AddJoins().
// `context` is only read, and may be null. `known` is as in Analyze().
std::vector<Origin> FindPhases(const Frame& frame, const Regions& regions,
                               const std::vector<Modality>& sources,
                               const Context* context, const Known* known);

// Returns the origins that the graph shows by itself: unspecified where only
// neighbours or other graphs suggest one.
std::vector<Origin> ShownPhases(const Frame& frame, const Regions& regions,
                                const std::vector<Modality>& sources);

// Returns whether gradients are recorded, computed or applied. Signs are a
// backward pass, a loss, an optimizer's step, dropout that draws, and
// composites split for autograd.
bool IsTraining(const Frame& frame, const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_
