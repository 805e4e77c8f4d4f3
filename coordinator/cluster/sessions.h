// Sessions and their streams.
#ifndef COORDINATOR_CLUSTER_SESSIONS_H_
#define COORDINATOR_CLUSTER_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::sessions {

// Opens a session or attaches to one again; an older stream of it ends. `waker`
// is woken when NextResponse() may have something. Errors: as Session.Attach in
// session.proto.
absl::StatusOr<StreamId> Attach(ClusterState& state, const Tenant& tenant,
                                const v1::OpenSession& open,
                                const std::shared_ptr<Waker>& waker)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Sets the session's priority from now on. InvalidArgument (PROTOCOL_VIOLATION)
// for a deadline that is not positive.
absl::Status SetUrgency(ClusterState& state, const StreamId& session,
                        const v1::Urgency& urgency)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Issues the session's leases again if the priority differs from the one
// before: at once, or soon where it changes all the time.
void TakeUrgency(ClusterState& state, const v1::Urgency& said, Session* session,
                 Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Issues the session's leases again if TakeUrgency() has put that off.
void TellUrgency(ClusterState& state, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Notes that the session defined a graph, and the work that the graph is to the
// session's tenant (null: unknown). `shown`: the work that the graph shows by
// itself (null: unknown). Returns true when the session had not defined it
// before.
bool NoteGraph(ClusterState& state, const StreamId& session,
               absl::string_view fingerprint, SharedWork work = nullptr,
               SharedWork shown = nullptr) ABSL_LOCKS_EXCLUDED(state.mu);

// Ends the session.
void Close(ClusterState& state, const StreamId& session)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes that the stream broke; the session waits for its time-out.
void Detach(ClusterState& state, const StreamId& session)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends all leases of the session.
void Release(ClusterState& state, Session* session, absl::string_view why,
             Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends all leases of the session and forgets it.
void End(ClusterState& state, Session* session, absl::string_view why,
         Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the next message to send, if there is one. A status ends the stream.
absl::StatusOr<std::optional<v1::SessionResponse>> NextResponse(
    ClusterState& state, const StreamId& session) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::sessions

#endif  // COORDINATOR_CLUSTER_SESSIONS_H_
