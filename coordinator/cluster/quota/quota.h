// Quotas: which leases fit, and what is said of them.
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

// Applies the configured quotas of tenants and cohorts.
void Configure(ClusterState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns true when the pending request is within what a lease may hold, and
// the tenant's quota has room for it, or would have if others gave back what
// they borrow. Otherwise returns false: the request keeps waiting with the
// reason noted, or, when waiting will not help, it leaves the queue and its
// client is refused.
bool AdmitOrRefuse(ClusterState& state, MemberId device, const Tenant& tenant,
                   Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns why AdmitOrRefuse() refuses a request for so many bytes, however much
// is free: ResourceExhausted (QUOTA_EXCEEDED).
absl::Status LimitObstacle(const Tenant& tenant, uint64_t needed_bytes);

// Returns why else AdmitOrRefuse() returns false; OK when there is room.
absl::Status Obstacle(const ClusterState& state, const Tenant& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the status for a breach: ResourceExhausted (QUOTA_EXCEEDED).
absl::Status Exceeded(const Tenant& tenant,
                      const scheduler::QuotaTree::Breach& breach);

// Adds the tenant's quotas and its use of them.
void Describe(ClusterState& state, const Tenant& tenant, v1::TenantInfo* info)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Says what the quota rules would decide, and changes nothing. Errors: as
// Admin.TryQuota in admin.proto.
absl::StatusOr<v1::TryQuotaResponse> Try(ClusterState& state,
                                         const v1::TryQuotaRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::quota

#endif  // COORDINATOR_CLUSTER_QUOTA_QUOTA_H_
