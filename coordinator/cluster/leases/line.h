// Orders the requests that wait for a worker. placement.h decides when to try
// them again.
#ifndef COORDINATOR_CLUSTER_LEASES_LINE_H_
#define COORDINATOR_CLUSTER_LEASES_LINE_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "scheduler/fairness/wait_queue.h"

namespace djinn::coordinator::line {

// Positions in the wait queue. Unset until the first PlaceOf() computes them,
// because that takes long when many requests wait.
using Places = std::optional<scheduler::WaitQueue::Places>;

// Adds the session's pending request to the wait queue, if it is not there yet.
// If the tenant's queue is stopped, removes the request from the wait queue
// instead, and notes the stop as the request's obstacle.
void Join(ClusterState& state, MemberId device, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes the request from the wait queue, if it is there. Releases the worker
// that was reserved for it.
void Leave(ClusterState& state, PendingLease* pending)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Handles a pending request that cannot be placed now. A request for the first
// worker of a virtual device joins the wait queue, with `obstacle` as the
// reason. A request for a further worker is removed and refused with
// `obstacle`.
void LeaveUnplaced(ClusterState& state, MemberId device,
                   const absl::Status& obstacle, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the priority class by which the session's requests are ordered.
// `tenant`, which may be null, caps the class.
int ClassOf(const Session& session, const Tenant* tenant);

// Reorders the session's waiting requests by its present priority and run
// deadline.
void ChangePlaces(ClusterState& state, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the function that orders tenants in the wait queue: a tenant that
// borrows a smaller share from its cohort comes first.
scheduler::WaitQueue::Precedence PrecedenceNow(const ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the position of a waiting request, 1 for the first. The ticket must
// be in the wait queue. Fills `places` on the first call.
size_t PlaceOf(ClusterState& state, scheduler::WaitQueue::Ticket ticket,
               absl::Duration now, Places* places)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::line

#endif  // COORDINATOR_CLUSTER_LEASES_LINE_H_
