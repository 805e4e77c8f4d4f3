// Estimates the cost of a call: floating-point operations, and bytes that it
// reads and writes. Products, convolutions and attention count as in PyTorch's
// torch.utils.flop_counter; other calls count a few operations per element.
#ifndef SCHEDULER_SEMANTICS_COST_COST_H_
#define SCHEDULER_SEMANTICS_COST_COST_H_

#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

Cost CostOf(const Frame& frame, int node);

// Returns the operations that PyTorch's counter counts; 0 for all other
// operators.
uint64_t ProductFlops(const Frame& frame, int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_COST_COST_H_
