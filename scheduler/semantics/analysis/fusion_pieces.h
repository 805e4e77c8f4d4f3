// The projections that lead to a join which another piece of the program shows:
// a value that the join reads is known again by its size.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// What ends with a projection like one whose rows a join is known to read
// becomes a fusion's. Ahead of MLPs, which look the same.
void AddJoinedProjections(const Frame& frame, const Context& context,
                          Regions* regions);

// Products of rows of length one that other pieces left.
void AddCutComparisons(const Frame& frame, const Context& context,
                       Regions* regions);

// Projections of images or sound, and rows of length one, that belong to no
// fusion and are left for another graph: of what, a join in a later one may
// show.
std::vector<Projection> FindLeftProjections(const Frame& frame,
                                            const Regions& regions,
                                            const Meaning& meaning);

// Tells the context what joins read that others left, and what is left here.
// Once for each graph, in their order.
void LearnJoins(const Frame& frame, const Regions& regions,
                const Meaning& meaning, Context* context);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_
