// Finds the projections that lead to a join in another piece of the program. A
// value that the join reads is recognized by its size.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Adds nodes that end with a projection like one whose rows a join is known to
// read as a fusion. Must precede the MLP pattern, whose regions look the same.
void AddJoinedProjections(const Frame& frame, const Context& context,
                          Regions* regions);

// Adds products of rows of length one that other pieces left.
void AddCutComparisons(const Frame& frame, const Context& context,
                       Regions* regions);

// Returns projections of images or sound, and rows of length one, that belong
// to no fusion and are left for another graph. A join in a later graph may show
// what they belong to.
std::vector<Projection> FindLeftProjections(const Frame& frame,
                                            const Regions& regions,
                                            const Meaning& meaning);

// Updates the context with the values of other graphs that joins read, and with
// the projections that this graph leaves. Call it once for each graph, in their
// order.
void LearnJoins(const Frame& frame, const Regions& regions,
                const Meaning& meaning, Context* context);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_FUSION_PIECES_H_
