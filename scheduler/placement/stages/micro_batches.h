// Cuts the rows of a graph into micro-batches that pass through its stages
// one behind the other. One run thereby keeps several workers busy although
// each has only a part of the weights: a pipeline as in GPipe (NeurIPS'19).
//
// The rows must be independent (scheduler/semantics/rows/batch_cut.h). The
// stages are those of stages.h, where all nodes of a stage can execute before
// any node of the next. The inputs of a run are on the first worker, and its
// outputs are joined there.
//
// With stage times tᵢ(n) of n rows, k micro-batches of N rows take Σ tᵢ(N/k) +
// (k - 1) max tᵢ(N/k), plus the transfer of the outputs. k is the least count
// whose time is within 5 % of the best.
#ifndef SCHEDULER_PLACEMENT_STAGES_MICRO_BATCHES_H_
#define SCHEDULER_PLACEMENT_STAGES_MICRO_BATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/placement/stages/row_cost.h"
#include "scheduler/placement/stages/stages.h"

namespace djinn::scheduler {

// More than these gain little.
inline constexpr int64_t kMaxMicroBatches = 16;

struct MicroBatches {
  struct Part {
    int64_t rows = 0;
    // Time through all stages.
    double compute_seconds = 0;
    double transfer_seconds = 0;
  };
  // The micro-batches in the order of the rows, as equal as possible. There are
  // at least two, or none when micro-batches do not pay or are impossible;
  // `problem` then says why.
  std::vector<Part> parts;
  // At least two stages when there are parts.
  StagePlan stages;
  // Time of a run in micro-batches, in one piece through the same stages, and
  // on the fastest worker that has room for all of it; 0 where it was not
  // computed, or no worker has room.
  double seconds = 0;
  double whole_seconds = 0;
  double alone_seconds = 0;
  std::string problem;
};

MicroBatches PlanMicroBatches(const RowWork& work);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_MICRO_BATCHES_H_
