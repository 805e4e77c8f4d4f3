// Takes back what is borrowed: quota, and the room at a worker that goes with
// it.
#ifndef COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_
#define COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "scheduler/placement/request.h"

namespace djinn::coordinator::reclaim {

// Takes back the quota that the tenant needs for the pending request's lease,
// or nothing when the borrowers cannot give it back now: ResourceExhausted
// (QUOTA_EXCEEDED).
absl::Status TakeQuota(ClusterState& state, const Tenant& tenant,
                       PendingLease* pending, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// No worker has room for the pending request, which waits in line. If it lies
// within its tenant's nominal quota, takes back what others borrow at one
// worker that it fits on then, and keeps that for it; nothing when there is
// no such worker, or while room that was taken before is on its way.
void TakeRoom(ClusterState& state, MemberId device, const Tenant& tenant,
              const scheduler::Request& request, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker has yet to drop sessions whose room is for the request.
bool RoomIsOnItsWay(ClusterState& state, const PendingLease& pending)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::reclaim

#endif  // COORDINATOR_CLUSTER_QUOTA_RECLAIM_H_
