// Splits the rows of a graph among several workers, so that all of them
// execute one run side by side, each on some of the rows.
//
// The rows must be independent (scheduler/semantics/rows/batch_cut.h). Every
// worker has a copy of the storages that stay from run to run. The inputs of a
// run are on the first worker, and its outputs are joined there; the other
// workers receive and send rows over their links. The split minimises the time
// of the slowest part (row_cost.h).
#ifndef SCHEDULER_PLACEMENT_STAGES_BATCH_SPLIT_H_
#define SCHEDULER_PLACEMENT_STAGES_BATCH_SPLIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/placement/stages/row_cost.h"

namespace djinn::scheduler {

struct BatchSplit {
  struct Part {
    uint32_t worker = 0;  // index
    int64_t rows = 0;
    // Bytes that the part receives and sends over its link in every run.
    uint64_t input_bytes = 0;
    uint64_t output_bytes = 0;
    double compute_seconds = 0;
    double transfer_seconds = 0;

    double seconds() const { return compute_seconds + transfer_seconds; }
  };
  // The parts in the order of the workers and of the rows. There are at least
  // two, or none when a split does not pay; `problem` then says why. With both
  // parts and a problem, one run is faster when split, but stages let
  // consecutive runs overlap nearly as well.
  std::vector<Part> parts;
  // Bytes that stay on every worker.
  uint64_t weight_bytes = 0;
  // Time of a run on the first worker alone, and of the slowest stage of the
  // best cut into stages; 0 without such a cut.
  double alone_seconds = 0;
  double stage_seconds = 0;
  std::string problem;

  double slowest_seconds() const;
};

BatchSplit SplitBatch(const RowWork& work);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_BATCH_SPLIT_H_
