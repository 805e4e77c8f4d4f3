// Keeps the fleet, from which placement decides, in step with the registry of
// workers. A function that changes a worker or its leases either calls
// Refresh() or puts that off until Fresh().
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

// Returns the key by which placement identifies the tenant's content.
scheduler::StateKey KeyOf(const std::string& tenant, const ContentKey& key);

// Returns the bytes that the lease's session announced and that the worker does
// not hold yet; 0 from 30 seconds after the lease was made.
uint64_t PromisedBytes(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Copies the worker's present state, less the memory promised to its leases,
// into the fleet. Removes the worker from the fleet if it is not usable.
void Refresh(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Marks the worker for a refresh by the next Fresh(). Where many leases end at
// once, the worker is refreshed only once.
void PutOff(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Refreshes the worker after a report, with the contents that it holds, and
// learns from the times of its runs. Returns whether the worker is new in the
// fleet or has more memory available than before.
bool Absorb(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Refreshes the workers that PutOff() marked, and returns the fleet.
const scheduler::Fleet& Fresh(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::fleet

#endif  // COORDINATOR_CLUSTER_LEASES_FLEET_H_
