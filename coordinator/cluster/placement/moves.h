// Which virtual devices go to other workers: because their work is another,
// because there is a better place, because a worker drains, because an operator
// says so.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_
#define COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::moves {

// The session defined a structure with this work: it may be another phase,
// which another worker is better for.
void NotePhase(ClusterState& state, const SharedWork& work, Session* session,
               Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Looks for better places, for some leases in turn.
void Rebalance(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Has leases go from the workers that drain.
void AdvanceDrains(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::moves

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MOVES_H_
