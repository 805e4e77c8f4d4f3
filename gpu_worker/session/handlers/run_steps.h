// Steps that a run takes whether it is executed alone or in a batch: its
// checks, and the records of it.
#ifndef GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_
#define GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpu_worker/session/state/session_state.h"

namespace djinn::worker {

// Notes the phase of the graph, as its plan says.
void NotePhaseOf(SessionState& s, uint64_t id, v1::Phase phase,
                 GraphTable::Graph* graph);
// Notes the phase of the run that is about to begin.
void NotePhase(SessionState& s, v1::Phase phase);
// Returns the bytes of the contents that the bound run uses.
uint64_t BoundContentBytes(SessionState& s);
// Returns DeadlineExceeded when the run's turn came too late
// (RUN_DEADLINE_EXCEEDED), or when the run would complete too late
// (RUN_WOULD_BE_LATE).
absl::Status CheckDeadline(const SessionState& s, uint64_t graph);
// Returns whether the bound run may begin: when there is memory for it now, or
// when its turn preempts no other, because then waiting would not help.
bool HasRoom(SessionState& s, const Plan& plan);
RunContext ContextOf(SessionState& s, uint64_t sequence);

// Counts and remembers how long the run took, if it has a deadline.
void NoteRunTime(SessionState& s, uint64_t graph, absl::Duration took);
// Counts the refusal of the run.
void NoteRefusal(SessionState& s, const absl::Status& why);
// Notes the end of the run that arrived at `arrived`, the first one of its
// graph or not. Exports its spans if it has a trace.
void NoteRunOver(SessionState& s, const v1::RunMetadata& metadata,
                 absl::Duration arrived, bool first, RunRecords::End end,
                 const RunTrace* trace);
// Returns the trace of a run's message that has a context; null when the worker
// does not take it.
std::unique_ptr<RunTrace> TraceOf(const SessionState& s,
                                  const v1::Ordered& message);
// Returns why the device cannot time nodes; empty when it can.
std::string NodesUntimed(const SessionState& s);

// --- Runs of a batch.

// Prepares the run in `item`, which was taken, without any effect on storages.
// Returns true when the run has begun; it is then in s.runs.begun. Returns
// false when it does not suit the batch, or when something other than its
// execution comes first; outside the session's own turn that includes making a
// plan, which the other session would be charged for. An error is a violation
// of the protocol.
absl::StatusOr<bool> BeginBatchRun(
    SessionState& s, Inbox::Item* item,
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn);
// Ends that run, which was executed and took this much device time.
void EndBatchRun(SessionState& s, absl::Duration used);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_HANDLERS_RUN_STEPS_H_
