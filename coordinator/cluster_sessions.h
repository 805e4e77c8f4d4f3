// Sessions and their streams.
#ifndef COORDINATOR_CLUSTER_SESSIONS_H_
#define COORDINATOR_CLUSTER_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/session_table.h"
#include "coordinator/stream_id.h"
#include "coordinator/tenants.h"
#include "coordinator/waker.h"
#include "coordinator/work_table.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::sessions {

// Whether the message may be. The protocol's version that both sides speak.
absl::Status CheckOpen(const v1::OpenSession& open);

// InvalidArgument (PROTOCOL_VIOLATION) for a deadline that is not in the
// future.
absl::Status CheckUrgency(const v1::Urgency& urgency);

// As Cluster::Attach(), of a message that was checked.
absl::StatusOr<StreamId> Attach(ClusterState& state, const Tenant& tenant,
                                const v1::OpenSession& open,
                                const std::shared_ptr<Waker>& waker,
                                Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Its leases tell their workers, if it is another one than before: at once,
// or, where it changes all the time, soon.
void TakeUrgency(ClusterState& state, const v1::Urgency& said, Session* session,
                 Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The same of what is untold yet.
void TellUrgency(ClusterState& state, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::NoteStructure().
bool NoteStructure(ClusterState& state, const StreamId& session,
                   absl::string_view fingerprint, SharedWork work,
                   SharedWork shown, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Close().
void Close(ClusterState& state, const StreamId& session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Detach().
void Detach(ClusterState& state, const StreamId& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends the session's leases everywhere.
void Release(ClusterState& state, Session* session, absl::string_view why,
             Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The same, and forgets the session.
void End(ClusterState& state, Session* session, absl::string_view why,
         Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::NextResponse().
absl::StatusOr<std::optional<v1::SessionResponse>> NextResponse(
    ClusterState& state, const StreamId& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::sessions

#endif  // COORDINATOR_CLUSTER_SESSIONS_H_
