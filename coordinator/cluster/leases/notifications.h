// Notifies the cluster's peers: queues messages to sessions, and notes what the
// next message to a worker must contain. The other rules build on these
// functions, which call none of them.
//
// A changed lease becomes one message: List() and SignAgain() note the lease
// in Worker::link.unlisted, and workers::NextDesiredState() lists and signs
// only the noted ones.
#ifndef COORDINATOR_CLUSTER_LEASES_NOTIFICATIONS_H_
#define COORDINATOR_CLUSTER_LEASES_NOTIFICATIONS_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::notifications {

// Queues the message and wakes the session's stream. A session without a stream
// gets the message on its next one.
void Send(v1::SessionResponse response, Session* session, Wakes* wakes);

// Sends LeaseRefused with the error `why` to the client, counts the refusal and
// logs it. Limits how many refusals are logged per session.
void Refuse(ClusterState& state, const absl::Status& why, MemberId device,
            Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Wakes the worker's stream to send a message now rather than at the next
// heartbeat.
void Touch(Worker* worker, Wakes* wakes);

// Has the worker's next message list the lease.
void List(Lease* lease, Worker* worker, Wakes* wakes);

// Has the worker's next message list the lease with a newly signed revision.
// Call it after the lease's limits, credits or priority have changed.
void SignAgain(ClusterState& state, Lease* lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Has the worker's next message tell it to drop the session. The order stays
// until the worker has applied it and reports no lease of the session.
void Drop(const std::string& session_id, Worker* worker, Wakes* wakes);

// Wakes the worker's stream to send the end of a lease that the session had
// there. Has the worker drop the session if it has no other lease there. Does
// nothing when the worker is not known.
void LeaveWorker(ClusterState& state, const std::string& session_id,
                 const std::string& worker_id, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Makes peers of the lease's worker and each of the session's other workers:
// their next messages list one to the other, unless they know each other
// already.
void ListPeers(ClusterState& state, const Lease& lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::notifications

#endif  // COORDINATOR_CLUSTER_LEASES_NOTIFICATIONS_H_
