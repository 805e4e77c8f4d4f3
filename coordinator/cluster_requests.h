// Leases as clients ask for them and give them back.
#ifndef COORDINATOR_CLUSTER_REQUESTS_H_
#define COORDINATOR_CLUSTER_REQUESTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "coordinator/cluster_line.h"
#include "coordinator/cluster_state.h"
#include "coordinator/lease_table.h"
#include "coordinator/session_table.h"
#include "coordinator/stream_id.h"
#include "coordinator/waker.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::requests {

// What the request asks for. InvalidArgument (PROTOCOL_VIOLATION) where it is
// not as Cluster::RequestLease() says.
absl::StatusOr<PendingLease> Parse(const v1::LeaseRequest& request);

// As Cluster::RequestLease(), with what it asks for.
absl::Status Request(ClusterState& state, const StreamId& session,
                     MemberId device, PendingLease asked, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// InvalidArgument (PROTOCOL_VIOLATION) for an id that cannot be a lease's.
absl::Status CheckReturn(const v1::LeaseReturn& returned);

// As Cluster::ReturnLease(), of a message that was checked.
absl::Status Return(ClusterState& state, const StreamId& session,
                    const v1::LeaseReturn& returned, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Refuses those of the session's requests that have waited for too long.
void Expire(ClusterState& state, Session* session, absl::Duration now,
            line::Places* places, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::requests

#endif  // COORDINATOR_CLUSTER_REQUESTS_H_
