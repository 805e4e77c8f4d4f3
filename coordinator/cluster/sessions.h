// Opens, attaches and ends sessions, and feeds their streams.
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

// Opens a session, or attaches a new stream to one; an older stream of the
// session ends. Wakes `waker` when NextResponse() may have something. Returns
// the errors of Session.Attach in session.proto.
absl::StatusOr<StreamId> Attach(ClusterState& state, const Tenant& tenant,
                                const v1::OpenSession& open,
                                const std::shared_ptr<Waker>& waker)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Sets the session's priority from now on. Returns InvalidArgument
// (PROTOCOL_VIOLATION) for a deadline that is not positive, or the errors of
// ClusterState::FindOpenSession().
absl::Status SetUrgency(ClusterState& state, const StreamId& session,
                        const v1::Urgency& urgency)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Sets the session's priority. If it changed, reorders the session's waiting
// requests and has its leases signed again: at once, or in a later
// TellUrgency() if the priority changes too often.
void TakeUrgency(ClusterState& state, const v1::Urgency& said, Session* session,
                 Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Has the session's leases signed again if TakeUrgency() has put that off and
// enough time has passed.
void TellUrgency(ClusterState& state, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Notes that the session defined a graph. `work` is the work that the graph is
// to the session's tenant; `shown` is the work that it shows by itself. Both
// may be null if unknown. Returns whether the session had not defined the graph
// before; false when the session has another stream or has ended.
bool NoteGraph(ClusterState& state, const StreamId& session,
               absl::string_view fingerprint, SharedWork work = nullptr,
               SharedWork shown = nullptr) ABSL_LOCKS_EXCLUDED(state.mu);

// Ends the session at its client's wish, and remembers the work of its program
// for the next session. Does nothing when the session has another stream.
void Close(ClusterState& state, const StreamId& session)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes that the stream broke. The session stays until its time-out, if it does
// not attach again. Does nothing when the session has another stream.
void Detach(ClusterState& state, const StreamId& session)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends all leases and requests of the session, and has its workers drop it.
// `why` is logged. Sends nothing to the client.
void Release(ClusterState& state, Session* session, absl::string_view why,
             Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends all leases and requests of the session as Release() does, and removes
// the session.
void End(ClusterState& state, Session* session, absl::string_view why,
         Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the next message to send, or nothing if there is none. A status ends
// the stream: Unavailable (COORDINATOR_STOPPING), Aborted
// (SESSION_ATTACHED_ELSEWHERE) or the reason why the session has ended.
absl::StatusOr<std::optional<v1::SessionResponse>> NextResponse(
    ClusterState& state, const StreamId& session) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::sessions

#endif  // COORDINATOR_CLUSTER_SESSIONS_H_
