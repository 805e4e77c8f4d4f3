// What moves between the stages of a cut in every run, and what waits for it.
#ifndef SCHEDULER_PLACEMENT_STAGE_TRANSFERS_H_
#define SCHEDULER_PLACEMENT_STAGE_TRANSFERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/frame.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::scheduler {

// A value that one stage makes and another one needs. Stages are numbered as in
// the cut.
struct StageTransfer {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t slot = 0;
  uint64_t size_bytes = 0;
  double seconds = 0;
  // From when it has come to the end of the run, at least: the longest way, by
  // nodes and what crosses between them, from the nodes of `to` that read it.
  double remaining_seconds = 0;
};

// How a structure was cut.
struct CutNodes {
  // By node: the stage, and how long it takes there.
  absl::Span<const uint32_t> stage;
  absl::Span<const double> seconds;
  // By stage: bytes per second of what comes to it.
  absl::Span<const double> link;
};

// By node: how long a run still takes from its beginning on, at least: the
// longest way to the end. `edges` are those of the structure's meaning.
std::vector<double> RemainingSeconds(absl::Span<const semantics::Edge> edges,
                                     const CutNodes& cut);

// As MovesBefore() has them, the most critical first; each value once for every
// stage that reads it and does not make it. `remaining` is as above. Values of
// slots that are kept by a stage do not move, as everything that uses them is
// there.
std::vector<StageTransfer> FindTransfers(
    const semantics::Frame& frame,
    absl::Span<const semantics::SlotMeaning> slots, const CutNodes& cut,
    absl::Span<const double> remaining);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGE_TRANSFERS_H_
