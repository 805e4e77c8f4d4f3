// Executes what operators ask for: cordons, drains and migrations.
#ifndef COORDINATOR_ADMIN_OPERATIONS_H_
#define COORDINATOR_ADMIN_OPERATIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::coordinator::operations {

// Keeps new leases away from the worker, or lets them come again; with `drain`,
// its sessions migrate to other workers. Errors: NotFound (WORKER_UNKNOWN),
// InvalidArgument (DRAIN_NEEDS_CORDON).
absl::StatusOr<v1::WorkerInfo> Cordon(ClusterState& state,
                                      const std::string& id, bool cordoned,
                                      bool drain) ABSL_LOCKS_EXCLUDED(state.mu);

// Migrates virtual devices of the session. Errors: as Admin.MigrateSession in
// admin.proto.
absl::StatusOr<v1::MigrateSessionResponse> MigrateSession(
    ClusterState& state, const v1::MigrateSessionRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::operations

#endif  // COORDINATOR_ADMIN_OPERATIONS_H_
