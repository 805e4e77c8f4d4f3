// Dropout, which some front ends call as one and others in parts.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_
#define SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_

#include <vector>

#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// The free nodes that drop some of what `node` made: one call that draws, or
// the product with a mask and what draws that.
std::vector<int> DropoutBehind(const Frame& frame, const Regions& regions,
                               int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_DROPOUT_H_
