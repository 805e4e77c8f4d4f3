// Steps that a run takes whether it is executed alone or in a batch: what it is
// checked against, and what is noted of it.
#ifndef GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_
#define GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpu_worker/session/state/session_state.h"

namespace djinn::worker {

// The plan of the graph is of this phase.
void NotePhaseOf(SessionState& s, uint64_t id, v1::Phase phase,
                 GraphTable::Graph* graph);
// A run of this phase is about to begin.
void NotePhase(SessionState& s, v1::Phase phase);
// Of the contents that the bound run is bound to.
uint64_t BoundContentBytes(SessionState& s);
// DeadlineExceeded when the run of the graph comes too late
// (RUN_DEADLINE_EXCEEDED), or would be done too late (RUN_WOULD_BE_LATE).
absl::Status CheckDeadline(const SessionState& s, uint64_t graph);
// Whether there is room now for the bound run, or nothing would be put off for
// it: then it begins in any case.
bool HasRoom(SessionState& s, const Plan& plan);
RunContext ContextOf(SessionState& s, uint64_t sequence);

// The run took so long. Counts and remembers it where it has a deadline.
void NoteRunTime(SessionState& s, uint64_t graph, absl::Duration took);
// The run was refused: `why`.
void NoteRefusal(SessionState& s, const absl::Status& why);
// The run, which had arrived then, is over.
void NoteRunOver(SessionState& s, const v1::RunMetadata& metadata,
                 absl::Duration arrived, RunRecords::End end);

// --- Runs of a batch.
// Prepares the run in `item`, which was taken, without any effect on storages:
// true when it has begun, and is in s.runs.begun. False when it does not suit
// the batch, or something other than executing it is to be done first: in
// another session's turn, which would pay for it, also making a plan.
// FailedPrecondition and the like: a violation.
absl::StatusOr<bool> BeginBatchRun(
    SessionState& s, Inbox::Item* item,
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn);
// That run is executed; the device was busy with it for so long.
void EndBatchRun(SessionState& s, absl::Duration used);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_
