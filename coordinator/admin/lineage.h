// Shows operators what sessions' clients keep against the loss of their
// workers. Only the clients know it, so the functions ask them.
#ifndef COORDINATOR_ADMIN_LINEAGE_H_
#define COORDINATOR_ADMIN_LINEAGE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::lineage {

using Done = std::function<void(absl::StatusOr<v1::SessionLineage>)>;

// Asks the session's client. Calls `done` once, with the answer or an error of
// GetLineage: from any thread, without locks, perhaps before this function
// returns.
void Get(ClusterState& state, const v1::GetLineageRequest& request, Done done)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Fills in a recovery that a client reported.
void Describe(ClusterState& state, const Recovery& recovery,
              v1::RecoveryInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::lineage

#endif  // COORDINATOR_ADMIN_LINEAGE_H_
