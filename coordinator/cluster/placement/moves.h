// Decides which virtual devices to migrate: phase change, rebalancing, drain.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_
#define COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::moves {

// Notes the phase of a graph that the session defined. If it is another phase
// than before, and automatic migration is on, migrates the session's virtual
// devices to workers that suit it better.
void NotePhase(ClusterState& state, const SharedWork& work, Session* session,
               Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Searches better workers for a few leases, in turn, and starts at most one
// migration. Does nothing until it is due, or if automatic migration is off.
void Rebalance(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Starts migrations from workers that drain, a limited number at a time from
// each worker.
void AdvanceDrains(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::moves

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_
