// Who waits for a worker, and in which order. Who is tried when is
// cluster_placement.h's business.
#ifndef COORDINATOR_CLUSTER_LEASES_LINE_H_
#define COORDINATOR_CLUSTER_LEASES_LINE_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "scheduler/fairness/waiting_line.h"

namespace djinn::coordinator::line {

// Where those stand that wait in line; unset until the first one is asked
// about, since it takes long where many wait.
using Places = std::optional<scheduler::WaitingLine::Places>;

// The pending request waits for a worker from now on, unless it does, or its
// tenant is stopped: then it is set aside.
void Join(ClusterState& state, MemberId device, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// It does not any more, if it did.
void Leave(ClusterState& state, PendingLease* pending)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Nothing places the request yet: it waits for a worker, or is refused.
void LeaveUnplaced(ClusterState& state, MemberId device,
                   const absl::Status& obstacle, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// What counts there of its class. `tenant` may be null.
int ClassOf(const Session& session, const Tenant* tenant);

// Since when its session's urgency is another.
void ChangePlaces(ClusterState& state, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Who has the lesser share of what its cohort lends goes first.
scheduler::WaitingLine::Precedence PrecedenceNow(const ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// 1 for the first. It waits.
size_t PlaceOf(ClusterState& state, scheduler::WaitingLine::Ticket ticket,
               absl::Duration now, Places* places)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::line

#endif  // COORDINATOR_CLUSTER_LEASES_LINE_H_
