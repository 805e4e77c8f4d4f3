// What calls and transfers take by the rows of a batch that they are about:
// so much however few these are, and as much again for each of them.
#ifndef SCHEDULER_PLACEMENT_ROW_COST_H_
#define SCHEDULER_PLACEMENT_ROW_COST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "scheduler/placement/stages.h"
#include "scheduler/semantics/batch_cut.h"
#include "scheduler/semantics/frame.h"
#include "scheduler/semantics/meaning.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

// What is to be carried out on some of its rows at a time. Everything is
// somebody else's.
struct RowWork {
  // `meaning`, `cut` and `stages` are about it.
  const srg::Structure& structure;
  const semantics::Meaning& meaning;
  const semantics::BatchCut& cut;
  // The slots that come anew in every run; other bound ones stay.
  absl::Span<const uint32_t> given;
  // Those that leave it.
  absl::Span<const uint32_t> outputs;
  // At least one. Where one says nothing of its speed, all count as equal.
  absl::Span<const StageWorker> workers;
  const semantics::CostFactors& factors;
  // How all of it would be cut into stages for these workers, as PlanStages()
  // says.
  const absl::StatusOr<StagePlan>& stages;
};

// Seconds or bytes.
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

// What a structure's calls take at a worker, by the roofline with factors
// learnt. The time is taken to grow evenly from what a call takes however few
// its rows are (reading weights, what works on no rows) to what it takes for
// all of them: a chord of the roofline, which is never below it.
class CallCosts {
 public:
  // `frame` is of the work's structure. Both must outlive it.
  CallCosts(const semantics::Frame& frame, const RowWork& work);

  RowCost OfNode(int node, const StageWorker& worker) const;
  // Of all nodes.
  RowCost OfAll(const StageWorker& worker) const;
  // Bytes of the slot's value.
  RowCost BytesOf(uint32_t slot) const;

 private:
  const semantics::Frame& frame_;
  const RowWork& work_;
  // How fast they are, all of them.
  const bool known_;
};

// Bytes per second to the worker.
double LinkOf(const StageWorker& worker);
// "0.0123s"
std::string SecondsText(double seconds);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_ROW_COST_H_
