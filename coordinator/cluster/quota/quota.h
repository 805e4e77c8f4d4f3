// Decides which leases fit into quotas, and describes quotas to operators.
#ifndef COORDINATOR_CLUSTER_QUOTA_QUOTA_H_
#define COORDINATOR_CLUSTER_QUOTA_QUOTA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/quota.pb.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::quota {

// Puts the configured quotas, rates and weights of tenants and cohorts into
// force.
void Configure(ClusterState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns true if the session's pending request for the device asks for no more
// memory than a lease may hold, and its tenant's quota has room or can take
// back enough from borrowers.
//
// Otherwise returns false and has handled the request. If quota may become
// free, the request waits, as line::LeaveUnplaced() describes. If not, erases
// the pending request from the session and from the wait queue, and refuses the
// client with ResourceExhausted (QUOTA_EXCEEDED). The caller must look the
// request up again.
bool AdmitOrRefuse(ClusterState& state, MemberId device, const Tenant& tenant,
                   Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns ResourceExhausted (QUOTA_EXCEEDED) if a lease of the tenant may never
// hold so many bytes, whatever is free; otherwise OK.
absl::Status LimitObstacle(const Tenant& tenant, uint64_t needed_bytes);

// Returns ResourceExhausted (QUOTA_EXCEEDED) if the tenant's quota has no room
// for another lease and cannot take back enough; otherwise OK. Changes nothing.
absl::Status Obstacle(const ClusterState& state, const Tenant& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns ResourceExhausted (QUOTA_EXCEEDED) with the limit, the use and the
// amount asked.
absl::Status Exceeded(const Tenant& tenant,
                      const scheduler::QuotaTree::Breach& breach);

// Adds the tenant's cohort, share, quotas and their use to `info`.
void Describe(ClusterState& state, const Tenant& tenant, v1::TenantInfo* info)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns what the quota rules would decide, and changes nothing. Returns the
// errors of Admin.TryQuota in admin.proto.
absl::StatusOr<v1::TryQuotaResponse> Try(ClusterState& state,
                                         const v1::TryQuotaRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::quota

#endif  // COORDINATOR_CLUSTER_QUOTA_QUOTA_H_
