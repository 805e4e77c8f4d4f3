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

// Cordons the worker, so that it gets no new leases, or lifts the cordon. With
// `drain`, its sessions migrate to other workers. Returns NotFound
// (WORKER_UNKNOWN), or InvalidArgument (DRAIN_NEEDS_CORDON) for `drain` without
// `cordoned`.
absl::StatusOr<v1::WorkerInfo> Cordon(ClusterState& state,
                                      const std::string& id, bool cordoned,
                                      bool drain) ABSL_LOCKS_EXCLUDED(state.mu);

// Starts to migrate virtual devices of the session. Returns the errors of
// Admin.MigrateSession in admin.proto.
absl::StatusOr<v1::MigrateSessionResponse> MigrateSession(
    ClusterState& state, const v1::MigrateSessionRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::operations

#endif  // COORDINATOR_ADMIN_OPERATIONS_H_
