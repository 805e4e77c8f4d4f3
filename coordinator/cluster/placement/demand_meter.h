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

// Counts the work that arrived according to the worker's last report: the runs
// that it executed, and the growth of its queue.
void Absorb(ClusterState& state, Worker* worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns a mask with bit N set, where N is the phase of the session's work.
uint32_t PhaseBit(const ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Notes until when the worker may still serve its sessions, and with which
// phases. Called when the worker is about to be marked lost and its leases to
// end.
void NoteServesOn(ClusterState& state, absl::Duration now, Worker* worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the present demand. Returns Unavailable (DEMAND_UNKNOWN) until every
// worker has had time to report since this process began, and while a worker's
// reports are late.
absl::StatusOr<ClusterDemand> Demand(ClusterState& state)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Adds the demand, and the workers that it needs, to a scrape. Adds nothing
// while the demand is unknown.
void Collect(ClusterState& state, Exposition* out)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::demand

#endif  // COORDINATOR_CLUSTER_PLACEMENT_DEMAND_METER_H_
