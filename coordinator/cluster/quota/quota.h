// Quotas: which leases fit, and what is said of them.
#ifndef COORDINATOR_CLUSTER_QUOTA_QUOTA_H_
#define COORDINATOR_CLUSTER_QUOTA_QUOTA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/quota.pb.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::quota {

// Takes up what tenants and cohorts say now.
void Configure(ClusterState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Whether what the pending request needs lies within what a lease may hold,
// and the tenant's quota has room for one, or would have if others gave back
// what they borrow. If not, notes why, or refuses when waiting will not help.
bool MayFit(ClusterState& state, MemberId device, const Tenant& tenant,
            Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// What MayFit() would refuse of so much, whatever others have:
// ResourceExhausted (QUOTA_EXCEEDED).
absl::Status LimitObstacle(const Tenant& tenant, uint64_t needed_bytes);

// What it would note or refuse besides; OK when there is room.
absl::Status Obstacle(const ClusterState& state, const Tenant& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// What is said of a breach: ResourceExhausted (QUOTA_EXCEEDED).
absl::Status Exceeded(const Tenant& tenant,
                      const scheduler::QuotaTree::Breach& breach);

// Adds the tenant's quotas, and what it has of them.
void Describe(ClusterState& state, const Tenant& tenant, v1::TenantInfo* info)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Says what the quota rules would decide, and changes nothing. Errors: as
// Admin.TryQuota in admin.proto.
absl::StatusOr<v1::TryQuotaResponse> Try(ClusterState& state,
                                         const v1::TryQuotaRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::quota

#endif  // COORDINATOR_CLUSTER_QUOTA_QUOTA_H_
