// Finds rotations of heads by the positions of their tokens.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_
#define SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_

#include <vector>

#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns whether the node joins two parts of the same heads that were rotated
// against each other: one part negated, beside the other; or their sum and
// their difference, each times a factor. The parts may be halves or
// interleaved.
bool TurnsHeads(const Frame& frame, int node);

// Returns the free nodes of the rotation to which `node` belongs, for which
// TurnsHeads() holds; `node` comes first. Includes the products, and the copies
// of sines and cosines that match the columns of the heads.
std::vector<int> RotationAround(const Frame& frame, const Regions& regions,
                                int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_
