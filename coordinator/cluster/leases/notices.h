// Notifications to the cluster's peers: messages to sessions, and what the next
// message to a worker must say. The lowest of the rules.
#ifndef COORDINATOR_CLUSTER_LEASES_NOTICES_H_
#define COORDINATOR_CLUSTER_LEASES_NOTICES_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::notices {

// Sends to a session; keeps the message for its next stream if it has none now.
void Send(v1::SessionResponse response, Session* session, Wakes* wakes);

// Refuses the session's lease request, and counts that.
void Refuse(ClusterState& state, const absl::Status& why, MemberId device,
            Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Sends the worker a message soon.
void Touch(Worker* worker, Wakes* wakes);

// Lists the lease to its worker in the next message.
void List(Lease* lease, Worker* worker, Wakes* wakes);

// Issues the lease again and lists it to its worker in the next message: its
// limits, credits or priority have changed.
void IssueAgain(ClusterState& state, Lease* lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Drops the session at the worker by name.
void Drop(const std::string& session_id, Worker* worker, Wakes* wakes);

// Notes that a lease of the session at the worker has ended. The worker must
// forget the session if it has no other lease there.
void LeaveWorker(ClusterState& state, const std::string& session_id,
                 const std::string& worker_id, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Lists the new lease's worker to the session's other workers as a peer, and
// those to it.
void ListPeers(ClusterState& state, const Lease& lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::notices

#endif  // COORDINATOR_CLUSTER_LEASES_NOTICES_H_
