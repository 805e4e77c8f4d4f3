// Measures the demand on the cluster, from workers' reports and waiting
// sessions.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_DEMAND_METER_H_
#define COORDINATOR_CLUSTER_PLACEMENT_DEMAND_METER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "coordinator/cluster/placement/demand.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator::demand {

// Counts the work that the report says has arrived and waits.
void Absorb(ClusterState& state, Worker* worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns bit N when the session's work has phase N.
uint32_t PhaseBit(const ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker is about to be lost, and its leases to end.
void NoteServesOn(ClusterState& state, absl::Duration now, Worker* worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Unavailable (DEMAND_UNKNOWN) until everything that it needs is known.
absl::StatusOr<ClusterDemand> Demand(ClusterState& state)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Adds it to a scrape, as far as it is known.
void Collect(ClusterState& state, Exposition* out)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::demand

#endif  // COORDINATOR_CLUSTER_PLACEMENT_DEMAND_METER_H_
