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

// Notes that the session defined a graph with this work: another worker may be
// better for its phase.
void NotePhase(ClusterState& state, const SharedWork& work, Session* session,
               Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Searches better workers for some leases in turn.
void Rebalance(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Migrates leases from the workers that drain.
void AdvanceDrains(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::moves

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_
