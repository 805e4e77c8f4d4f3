// Rotations of heads by the position of their token.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_
#define SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_

#include <vector>

#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Whether the node joins two parts of the same heads that were turned against
// each other: one of them negated, beside the other; or their sum and their
// difference, each times a factor. The parts may be halves or lie side by side.
bool TurnsHeads(const Frame& frame, int node);

// Of a node that does: what is free of the rotation it is of, with the products
// and the copies of sines and cosines as many as the heads have columns; itself
// first.
std::vector<int> RotationAround(const Frame& frame, const Regions& regions,
                                int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_ROTATION_H_
