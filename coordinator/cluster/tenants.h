// Puts changes of tenants into force while the cluster runs.
#ifndef COORDINATOR_CLUSTER_TENANTS_H_
#define COORDINATOR_CLUSTER_TENANTS_H_

#include <vector>

#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::tenants {

// Replaces the tenants and cohorts by configured ones, except quotas that
// operators set, and returns the names of tenants that were added, changed or
// removed. A tenant counts as changed if its cohort has changed. Leases in
// force get the new limits, totals and credits with their next revision; limits
// that a client learned when it opened its session on a worker stay. Sessions
// of a removed tenant end.
v1::ReloadConfigResponse Set(ClusterState& state, std::vector<Tenant> tenants,
                             std::vector<Cohort> cohorts = {})
    ABSL_LOCKS_EXCLUDED(state.mu);

// Puts changed quotas of operators into force, as Set() does, and tries the
// waiting requests again.
void ApplyOverrides(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends the leases of tenants whose queues are stopped and drained. Virtual
// devices that lose a worker come first in the wait queue when their tenant's
// queue is resumed.
void DrainStopped(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::tenants

#endif  // COORDINATOR_CLUSTER_TENANTS_H_
