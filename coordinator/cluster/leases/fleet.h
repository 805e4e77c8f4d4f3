// What decisions see of workers: kept beside the registry. Whoever changes a
// worker or its leases brings it up to date, or puts that off until Fresh().
#ifndef COORDINATOR_CLUSTER_LEASES_FLEET_H_
#define COORDINATOR_CLUSTER_LEASES_FLEET_H_

#include <cstdint>
#include <string>

#include "common/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/placement/fleet.h"

namespace djinn::coordinator::fleet {

// By which a decision knows a content of the tenant.
scheduler::StateKey KeyOf(const std::string& tenant, const ContentKey& key);

// What the lease's session said that it would bring and has not yet, for as
// long as that counts.
uint64_t PromisedBytes(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker, or its leases, changed: decisions see it as it is now.
void Refresh(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The same once it matters: where many leases end at once the worker is looked
// at once.
void PutOff(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Refresh(), after a report; learns from it, too. Whether the worker may now
// take what it could not before.
bool Absorb(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// What decisions are made from, with all that was put off.
const scheduler::Fleet& Fresh(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::fleet

#endif  // COORDINATOR_CLUSTER_LEASES_FLEET_H_
