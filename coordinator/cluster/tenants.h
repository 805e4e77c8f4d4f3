// Tenants that come, change and go while the cluster runs.
#ifndef COORDINATOR_CLUSTER_TENANTS_H_
#define COORDINATOR_CLUSTER_TENANTS_H_

#include <vector>

#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::tenants {

// Replaces the tenants and cohorts. Running sessions have the new limits,
// totals and credits soon, except those that a client was told when it opened
// its session on a worker; sessions of a removed tenant end. A tenant whose
// cohort has changed counts as changed.
v1::ReloadConfigResponse Set(ClusterState& state, std::vector<Tenant> tenants,
                             std::vector<Cohort> cohorts = {})
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends the leases of tenants whose queues are stopped and drained.
void DrainStopped(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::tenants

#endif  // COORDINATOR_CLUSTER_TENANTS_H_
