// Tenants that come, change and go while the cluster runs.
#ifndef COORDINATOR_CLUSTER_TENANTS_H_
#define COORDINATOR_CLUSTER_TENANTS_H_

#include <vector>

#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/tenants.h"
#include "coordinator/waker.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::tenants {

// As Cluster::SetTenants().
v1::ReloadConfigResponse Set(ClusterState& state, std::vector<Tenant> tenants,
                             std::vector<Cohort> cohorts, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::tenants

#endif  // COORDINATOR_CLUSTER_TENANTS_H_
