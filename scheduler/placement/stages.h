// Cuts a structure into stages for several workers, so that runs of it that
// follow one another are carried out side by side: a pipeline.
//
// Weights are placed, and nodes follow them: a node runs where its largest
// weight is, and one without any where the node before it runs. Nodes that
// weights tie together are a *unit*; units stand in the order in which the
// structure first comes to their weights, and a stage is a stretch of them. So
// the backward pass of a layer stays with its forward pass. A node that needs
// weights of several units at once (a fused optimizer step, say) lets nobody
// cut between them.
//
// What is minimised is the time of the slowest stage, by the roofline with
// factors learnt, and what it fetches from other stages over its link; among
// equals, what crosses at all. The search is the linear partition of pipeline
// planners (PipeDream, SOSP'19) with unequal workers.
#ifndef SCHEDULER_PLACEMENT_STAGES_H_
#define SCHEDULER_PLACEMENT_STAGES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "scheduler/placement/stage_transfers.h"
#include "scheduler/semantics/meaning.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

// Of workers that say nothing of their speed, or of their link.
inline constexpr semantics::DeviceSpeed kReferenceSpeed = {1e11, 1e10, 1e-5};
inline constexpr double kReferenceLink = 1e9;
// What a cut must gain.
inline constexpr double kCutMargin = 0.1;

struct StageWorker {
  // As in WorkerFacts.
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
    // What comes from other stages in every run.
    uint64_t input_bytes = 0;
    double compute_seconds = 0;
    double transfer_seconds = 0;

    double seconds() const { return compute_seconds + transfer_seconds; }
  };
  // In order, none empty. One alone: a cut does not pay.
  std::vector<Stage> stages;
  // For each node the stage that carries it out.
  std::vector<uint32_t> stage_of_node;
  // For each node how long a run still takes from its beginning on, at least.
  std::vector<double> remaining_of_node;
  // What the stages' input_bytes are made of, the most critical first.
  std::vector<StageTransfer> transfers;
  // For each slot the worker that keeps it; -1: it comes and goes with the run.
  std::vector<int> worker_of_slot;
  // A run on the first worker alone.
  double alone_seconds = 0;

  double bottleneck_seconds() const;
};

// `meaning` is about `structure`; workers are at least one, in the order in
// which stages go to them. Where one says nothing of its speed, all count as
// equal. FailedPrecondition (NOT_DIVISIBLE) with what stands against it: no
// weights, too many, or no room for them.
//
// `in_force`: for each node the worker that carries it out by an earlier plan,
// whose weights are there; empty without one. What was found is then that plan
// again, unless another one gains kCutMargin over it: to go over to another one
// moves weights, and what is estimated would otherwise move them to and fro.
absl::StatusOr<StagePlan> PlanStages(const srg::Structure& structure,
                                     const semantics::Meaning& meaning,
                                     absl::Span<const StageWorker> workers,
                                     const semantics::CostFactors& factors,
                                     absl::Span<const uint32_t> in_force = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_H_
