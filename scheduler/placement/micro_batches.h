// Cuts the rows of a structure into micro-batches that go through its stages
// one behind the other, so that one run of it keeps several workers busy though
// each has only a part of the weights: a pipeline as in GPipe (NeurIPS'19).
//
// The rows are known to be independent (scheduler/semantics/batch_cut.h), and
// the stages are those of stages.h, where all nodes of one can be carried out
// before any of the next. What a run is given is on the first worker, and what
// leaves it is put together there.
//
// With stage times tᵢ(n) of n rows, k micro-batches of N rows take
//   Σ tᵢ(N/k) + (k - 1) max tᵢ(N/k),
// and bring the outputs back. k is the least that comes within 5 % of what any
// k takes.
#ifndef SCHEDULER_PLACEMENT_MICRO_BATCHES_H_
#define SCHEDULER_PLACEMENT_MICRO_BATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/placement/row_cost.h"
#include "scheduler/placement/stages.h"

namespace djinn::scheduler {

// More than these gain little.
inline constexpr int64_t kMaxMicroBatches = 16;

struct MicroBatches {
  struct Part {
    int64_t rows = 0;
    // Through all stages.
    double compute_seconds = 0;
    double transfer_seconds = 0;
  };
  // In the order of the rows, of which they have as equal shares as can be. At
  // least two, or none: it does not pay, or cannot be done, and `problem` says
  // why.
  std::vector<Part> parts;
  // At least two, where there are parts.
  StagePlan stages;
  // A run in micro-batches, in one piece through the same stages, and on the
  // fastest worker that has room for all of it; 0 where it was not looked at,
  // or none has.
  double seconds = 0;
  double whole_seconds = 0;
  double alone_seconds = 0;
  std::string problem;
};

MicroBatches PlanMicroBatches(const RowWork& work);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_MICRO_BATCHES_H_
