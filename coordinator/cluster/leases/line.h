// Orders requests that wait for a worker. placement.h decides when they are
// tried.
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

// Positions in the wait queue; unset until the first one is asked for, since
// computing them takes long where many wait.
using Places = std::optional<scheduler::WaitQueue::Places>;

// The pending request waits for a worker from now on, unless it does, or its
// tenant is stopped: then it is set aside.
void Join(ClusterState& state, MemberId device, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes the request from the wait queue, if it is there.
void Leave(ClusterState& state, PendingLease* pending)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Nothing places the request yet: it waits for a worker, or is refused.
void LeaveUnplaced(ClusterState& state, MemberId device,
                   const absl::Status& obstacle, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the class by which the session is ordered. `tenant` may be null.
int ClassOf(const Session& session, const Tenant* tenant);

// Moves the session's requests after its priority has changed.
void ChangePlaces(ClusterState& state, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the precedence of tenants: a lesser share of what the cohort lends
// comes first.
scheduler::WaitQueue::Precedence PrecedenceNow(const ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// 1 for the first. It waits.
size_t PlaceOf(ClusterState& state, scheduler::WaitQueue::Ticket ticket,
               absl::Duration now, Places* places)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::line

#endif  // COORDINATOR_CLUSTER_LEASES_LINE_H_
