// Takes back what tenants borrow: quota, and the memory at a worker that goes
// with it.
#ifndef COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_
#define COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "scheduler/placement/terms.h"

namespace djinn::coordinator::reclaim {

// Makes room in the tenant's quota for the pending request's lease: ends leases
// of borrowers until it fits. Returns OK when it fits. Ends no lease and
// returns ResourceExhausted (QUOTA_EXCEEDED) when the borrowers cannot give
// back enough now.
absl::Status TakeQuota(ClusterState& state, const Tenant& tenant,
                       PendingLease* pending, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Frees memory at one worker for a pending request that waits because no worker
// has room. Does so only if the request lies within its tenant's nominal quota:
// ends leases of borrowers at a worker on which the request fits then, and
// reserves that worker for it.
//
// Does nothing when there is no such worker, while memory that was taken before
// is still being freed, or when the last search was too recent.
void TakeRoom(ClusterState& state, MemberId device, const Tenant& tenant,
              const scheduler::Request& request, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns whether a usable worker has yet to drop a session that was ended to
// make room for the request.
bool RoomIsOnItsWay(ClusterState& state, const PendingLease& pending)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::reclaim

#endif  // COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_
