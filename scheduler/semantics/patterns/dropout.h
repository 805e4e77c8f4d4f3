// Finds dropout, which some front ends call as one operator and others in
// parts.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_
#define SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_

#include <vector>

#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns the free nodes that apply dropout to the output of `node`: one call
// that draws, or the product with a mask and the nodes that draw it.
std::vector<int> DropoutBehind(const Frame& frame, const Regions& regions,
                               int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_
