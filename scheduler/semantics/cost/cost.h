// What a call costs: floating-point operations as PyTorch's own counter
// (torch.utils.flop_counter) has them for products, convolutions and attention,
// and a few for each element otherwise; bytes of what it reads and writes.
#ifndef SCHEDULER_SEMANTICS_COST_COST_H_
#define SCHEDULER_SEMANTICS_COST_COST_H_

#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

Cost CostOf(const Frame& frame, int node);

// Only what PyTorch's counter counts; 0 for all other operators.
uint64_t ProductFlops(const Frame& frame, int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_COST_COST_H_
