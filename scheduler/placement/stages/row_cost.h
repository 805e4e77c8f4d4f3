// Models the cost of calls and transfers as a function of the number of rows: a
// fixed part plus a part for each row.
#ifndef SCHEDULER_PLACEMENT_STAGES_ROW_COST_H_
#define SCHEDULER_PLACEMENT_STAGES_ROW_COST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/placement/stages/stages.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/cost/roofline.h"
#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/rows/batch_cut.h"

namespace djinn::scheduler {

// A graph whose batch is to be divided. The struct owns nothing that it
// refers to.
struct RowWork {
  // `meaning`, `cut` and `stages` are about it.
  const srg::Graph& graph;
  const semantics::Meaning& meaning;
  const semantics::BatchCut& cut;
  // Slots whose contents are new in every run; other bound slots stay.
  absl::Span<const uint32_t> given;
  // Slots that leave the graph.
  absl::Span<const uint32_t> outputs;
  // At least one worker. When one of them has no known speed, all count as
  // equal.
  absl::Span<const StageWorker> workers;
  const semantics::CostFactors& factors;
  // The cut of the whole graph into stages for these workers, from
  // PlanStages().
  const absl::StatusOr<StagePlan>& stages;
};

// A cost in seconds or bytes.
struct RowCost {
  double fixed = 0;
  double row = 0;

  double At(int64_t rows) const {
    return fixed + row * static_cast<double>(rows);
  }
  RowCost operator+(const RowCost& other) const {
    return {fixed + other.fixed, row + other.row};
  }
  RowCost operator/(double divisor) const {
    return {fixed / divisor, row / divisor};
  }
};

// Predicts the time of a graph's calls at a worker, by the roofline with
// learned factors. The time grows linearly from the part that is independent of
// rows (reading weights, calls without rows) to the time of all rows. This
// chord of the roofline is never below it.
class CallCosts {
 public:
  // `frame` is of the work's graph. Both must outlive it.
  CallCosts(const semantics::Frame& frame, const RowWork& work);

  RowCost OfNode(int node, const StageWorker& worker) const;
  // Returns the cost of all nodes.
  RowCost OfAll(const StageWorker& worker) const;
  // Returns the bytes of the slot's value.
  RowCost BytesOf(uint32_t slot) const;

 private:
  const semantics::Frame& frame_;
  const RowWork& work_;
  // True when the speed of every worker is known.
  const bool known_;
};

// Returns the bandwidth of the link to the worker, in bytes per second.
double LinkOf(const StageWorker& worker);
// Formats seconds, such as "0.0123s".
std::string SecondsText(double seconds);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_ROW_COST_H_
