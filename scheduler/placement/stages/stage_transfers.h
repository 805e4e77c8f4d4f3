// Finds the values that move between the stages of a cut in every run, and how
// much of the run waits for each.
#ifndef SCHEDULER_PLACEMENT_STAGES_STAGE_TRANSFERS_H_
#define SCHEDULER_PLACEMENT_STAGES_STAGE_TRANSFERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::scheduler {

// A value that one stage makes and another one needs. Stages are numbered as in
// the cut.
struct StageTransfer {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t slot = 0;
  uint64_t size_bytes = 0;
  double seconds = 0;
  // Least time from the arrival of the value to the end of the run: the longest
  // path, over nodes and transfers, from the nodes of `to` that read it.
  double remaining_seconds = 0;
};

// The cut of a graph, by node and stage.
struct CutNodes {
  // By node: its stage, and its time there in seconds.
  absl::Span<const uint32_t> stage;
  absl::Span<const double> seconds;
  // By stage: bytes per second of the link into it.
  absl::Span<const double> link;
};

// Returns, by node, the least time from its start to the end of the run: the
// longest path. `edges` are those of the graph's meaning.
std::vector<double> RemainingSeconds(absl::Span<const semantics::Edge> edges,
                                     const CutNodes& cut);

// Returns the transfers in the order of MovesBefore(), the most critical first:
// each value once for every stage that reads it and does not produce it.
// `remaining` comes from RemainingSeconds(). Values of slots that a stage keeps
// do not move, since all nodes that use them are there.
std::vector<StageTransfer> FindTransfers(
    const semantics::Frame& frame,
    absl::Span<const semantics::SlotMeaning> slots, const CutNodes& cut,
    absl::Span<const double> remaining);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_STAGE_TRANSFERS_H_
