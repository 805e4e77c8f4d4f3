// Cuts a graph into stages for several workers, so that consecutive runs
// execute side by side: a pipeline.
//
// Weights are placed, and nodes follow them: a node executes where its largest
// weight is, and a node without weights executes where the node before it does.
// Nodes that share weights form a *unit*; units stand in the order in which the
// graph first uses their weights, and a stage is a stretch of units. The
// backward pass of a layer therefore stays with its forward pass. A node that
// needs weights of several units at once, such as a fused optimizer step,
// forbids a cut between them.
//
// The cut minimises the time of the slowest stage, by the roofline with learned
// factors, plus what it fetches from other stages over its link; ties go to
// fewer transferred bytes. The search is the linear partition of pipeline
// planners (PipeDream, SOSP'19) with unequal workers.
#ifndef SCHEDULER_PLACEMENT_STAGES_STAGES_H_
#define SCHEDULER_PLACEMENT_STAGES_STAGES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/placement/stages/stage_transfers.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// The assumed speed of workers that report no speed or no link.
inline constexpr semantics::DeviceSpeed kReferenceSpeed = {1e11, 1e10, 1e-5};
inline constexpr double kReferenceLink = 1e9;
// The least relative gain of a cut.
inline constexpr double kCutMargin = 0.1;

struct StageWorker {
  // Kind of device, as in WorkerFacts.
  std::string device;
  semantics::DeviceSpeed speed;
  double link_bytes_per_second = 0;
  uint64_t available_bytes = std::numeric_limits<uint64_t>::max();
};

struct StagePlan {
  struct Stage {
    uint32_t worker = 0;  // index
    uint32_t node_count = 0;
    uint64_t weight_bytes = 0;
    // Bytes that arrive from other stages in every run.
    uint64_t input_bytes = 0;
    double compute_seconds = 0;
    double transfer_seconds = 0;

    double seconds() const { return compute_seconds + transfer_seconds; }
  };
  // The stages in order, none empty. A single stage means that a cut does not
  // pay.
  std::vector<Stage> stages;
  // By node: the stage that executes it.
  std::vector<uint32_t> stage_of_node;
  // By node: the least time from its start to the end of the run.
  std::vector<double> remaining_of_node;
  // The transfers that add up to the stages' input_bytes, the most critical
  // first.
  std::vector<StageTransfer> transfers;
  // For each slot, the worker that keeps it, or -1 if the storage exists only
  // during the run.
  std::vector<int> worker_of_slot;
  // Time of a run on the first worker alone.
  double alone_seconds = 0;

  double bottleneck_seconds() const;
};

// Cuts the graph into stages. `meaning` describes `graph`. There must be at
// least one worker; stages go to the workers in their order. If one reports no
// speed, all count as equal. FailedPrecondition (NOT_DIVISIBLE) gives the
// reason: no weights, too many, or no room for them.
//
// `in_force` is the worker of each node in an earlier plan, whose weights the
// workers hold; empty if there is no such plan. The result equals the earlier
// plan unless another one gains more than kCutMargin. A change of plans moves
// weights, and uncertain estimates would otherwise move them back and forth.
absl::StatusOr<StagePlan> PlanStages(const srg::Graph& graph,
                                     const semantics::Meaning& meaning,
                                     absl::Span<const StageWorker> workers,
                                     const semantics::CostFactors& factors,
                                     absl::Span<const uint32_t> in_force = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_STAGES_H_
