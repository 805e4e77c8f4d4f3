// Handles clients' requests for leases, and leases that clients return.
#ifndef COORDINATOR_CLUSTER_REQUESTS_H_
#define COORDINATOR_CLUSTER_REQUESTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::requests {

// Accepts a lease request. The grant or refusal comes through
// sessions::NextResponse(). A device that has a granted lease gets it again; a
// second request for a device that waits for one does nothing.
//
// Returns InvalidArgument (PROTOCOL_VIOLATION) for a device beyond
// kMaxVirtualDevices, a member beyond kMaxMembers, more than kMaxContentHints
// contents, or a client that does not read its answers. Returns the errors of
// ClusterState::FindOpenSession() when the session has another stream or has
// ended.
absl::Status Request(ClusterState& state, const StreamId& session,
                     const v1::LeaseRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends a lease that the session returns, and withdraws it from its worker. If
// the worker was unreachable, placement avoids it for the session for a while.
// Does nothing for a lease that is not the session's, is not granted or has
// ended.
//
// Returns InvalidArgument (PROTOCOL_VIOLATION) for an id that cannot be a
// lease's, or the errors of ClusterState::FindOpenSession().
absl::Status Return(ClusterState& state, const StreamId& session,
                    const v1::LeaseReturn& returned)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Refuses the session's requests that have passed their deadline, and withdraws
// their offered leases.
void Expire(ClusterState& state, Session* session, absl::Duration now,
            line::Places* places, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::requests

#endif  // COORDINATOR_CLUSTER_REQUESTS_H_
