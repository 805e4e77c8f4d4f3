// Handles clients' requests and returns of leases.
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

// Takes a lease request; the answer comes through sessions::NextResponse().
// InvalidArgument (PROTOCOL_VIOLATION) for a device beyond kMaxVirtualDevices,
// a member beyond kMaxMembers, or more than kMaxContentHints contents.
absl::Status Request(ClusterState& state, const StreamId& session,
                     const v1::LeaseRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Takes a lease back that the session has no use for. Leases that are not its
// own, or have ended, change nothing. InvalidArgument (PROTOCOL_VIOLATION) for
// an id that cannot be a lease's.
absl::Status Return(ClusterState& state, const StreamId& session,
                    const v1::LeaseReturn& returned)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Refuses those of the session's requests that have waited for too long.
void Expire(ClusterState& state, Session* session, absl::Duration now,
            line::Places* places, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::requests

#endif  // COORDINATOR_CLUSTER_REQUESTS_H_
