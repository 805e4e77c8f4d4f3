// Shows, stops and resumes tenants' queues for operators.
#ifndef COORDINATOR_ADMIN_QUEUES_H_
#define COORDINATOR_ADMIN_QUEUES_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/page.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/queue.pb.h"

namespace djinn::coordinator::queues {

// Stops the tenant's queue: none of its requests gets a lease. With `drain`,
// its leases end, too. Returns NotFound (TENANT_UNKNOWN).
absl::StatusOr<v1::QueueInfo> Stop(ClusterState& state,
                                   const std::string& tenant, bool drain)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Resumes the tenant's queue and has its requests tried again. Returns NotFound
// (TENANT_UNKNOWN) when there is no such tenant and no such stopped queue.
absl::StatusOr<v1::QueueInfo> Resume(ClusterState& state,
                                     const std::string& tenant)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the tenant's queue, or NotFound (TENANT_UNKNOWN).
absl::StatusOr<v1::QueueInfo> Get(ClusterState& state,
                                  const std::string& tenant)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns a page of queues, by tenant.
Page<v1::QueueInfo> List(ClusterState& state, const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::queues

#endif  // COORDINATOR_ADMIN_QUEUES_H_
