// Takes what clients report of the losses of their workers: recoveries,
// checkpoints, and answers to operators' questions. Nothing is decided by it.
#ifndef COORDINATOR_CLUSTER_REPORTS_H_
#define COORDINATOR_CLUSTER_REPORTS_H_

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/recovery.pb.h"

namespace djinn::coordinator::reports {

// Each takes a message of a session's stream. Errors end the stream:
// InvalidArgument (PROTOCOL_VIOLATION) for texts or numbers that no client
// sends, and those of ClusterState::FindOpenSession(). Reports that come too
// fast are left out. Texts are cleaned for terminals and cut at 1,024 bytes,
// and durations are clamped to a day.

absl::Status NoteRecovery(ClusterState& state, const StreamId& id,
                          const v1::RecoveryReport& report)
    ABSL_LOCKS_EXCLUDED(state.mu);

absl::Status NoteCheckpoint(ClusterState& state, const StreamId& id,
                            const v1::CheckpointReport& report)
    ABSL_LOCKS_EXCLUDED(state.mu);

absl::Status TakeLineage(ClusterState& state, const StreamId& id,
                         const v1::LineageAnswer& answer)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::reports

#endif  // COORDINATOR_CLUSTER_REPORTS_H_
