// Which phase of a program each node belongs to, and what kind of data it works
// on.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// One for each node. `sources` are those that AddJoins() returned; `context`
// may be null; it is read only. `known` is as in Analyze().
std::vector<Origin> FindPhases(const Frame& frame, const Regions& regions,
                               const std::vector<Modality>& sources,
                               const Context* context, const Known* known);

// Likewise, of what the graph shows by itself: unspecified where only
// neighbours or other graphs say more.
std::vector<Origin> ShownPhases(const Frame& frame, const Regions& regions,
                                const std::vector<Modality>& sources);

// Whether gradients are recorded, computed or applied: a backward pass, a loss,
// an optimizer's step, dropout that draws, or composites split for autograd.
bool IsTraining(const Frame& frame, const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_PHASES_H_
