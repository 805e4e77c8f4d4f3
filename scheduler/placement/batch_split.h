// Shares the rows of a structure out between several workers, so that one run
// of it is carried out by all of them side by side, each on some of the rows.
//
// The rows are known to be independent (scheduler/semantics/batch_cut.h).
// Every worker has a copy of what stays from run to run. What a run is given is
// on the first worker, and what leaves it is put together there: the others
// take and give over their links.
//
// What is minimised is the time of the slowest part (row_cost.h).
#ifndef SCHEDULER_PLACEMENT_BATCH_SPLIT_H_
#define SCHEDULER_PLACEMENT_BATCH_SPLIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/placement/row_cost.h"

namespace djinn::scheduler {

struct BatchSplit {
  struct Part {
    uint32_t worker = 0;  // index
    int64_t rows = 0;
    // What it takes and gives over its link in every run.
    uint64_t input_bytes = 0;
    uint64_t output_bytes = 0;
    double compute_seconds = 0;
    double transfer_seconds = 0;

    double seconds() const { return compute_seconds + transfer_seconds; }
  };
  // In the order of the workers, which is that of the rows. At least two, or
  // none: it does not pay, and `problem` says why. With both, a run is done
  // sooner so, and only that stages let runs follow one another nearly as fast
  // speaks against it.
  std::vector<Part> parts;
  // What stays on every worker.
  uint64_t weight_bytes = 0;
  // A run on the first worker alone, and the slowest stage of the best cut into
  // stages; 0 without such a cut.
  double alone_seconds = 0;
  double stage_seconds = 0;
  std::string problem;

  double slowest_seconds() const;
};

BatchSplit SplitBatch(const RowWork& work);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_BATCH_SPLIT_H_
