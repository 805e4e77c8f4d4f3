// Keeps the fleet, which decisions see, beside the registry. A function that
// changes a worker or its leases brings the fleet up to date, or puts that off
// until Fresh().
#ifndef COORDINATOR_CLUSTER_LEASES_FLEET_H_
#define COORDINATOR_CLUSTER_LEASES_FLEET_H_

#include <cstdint>
#include <string>

#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/placement/fleet.h"

namespace djinn::coordinator::fleet {

// Returns the key by which a decision knows a content of the tenant.
scheduler::StateKey KeyOf(const std::string& tenant, const ContentKey& key);

// Returns the bytes that the lease's session announced and has not brought yet,
// as long as they count.
uint64_t PromisedBytes(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker, or its leases, changed: decisions see it as it is now.
void Refresh(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Refreshes the worker when it matters: where many leases end at once, only
// once.
void PutOff(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Refreshes the worker after a report and learns from it. Returns whether the
// worker may now take what it could not before.
bool Absorb(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the fleet after everything that was put off.
const scheduler::Fleet& Fresh(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::fleet

#endif  // COORDINATOR_CLUSTER_LEASES_FLEET_H_
