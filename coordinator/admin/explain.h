// Explains why virtual devices are on their workers, and what holds up the
// others.
#ifndef COORDINATOR_ADMIN_EXPLAIN_H_
#define COORDINATOR_ADMIN_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::explain {

// Returns what would give more credit to a lease that has none left,
// human-readable.
std::string CreditUnblockedBy(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Explains the session's devices that have a lease, request one, or have lost
// one, in the order of their numbers.
std::vector<v1::DeviceExplanation> ExplainDevices(ClusterState& state,
                                                  const Session& session,
                                                  line::Places* places)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Explains the devices of the session with the id, which may be shortened.
// Returns NotFound (SESSION_UNKNOWN).
absl::StatusOr<v1::SessionExplanation> ExplainSession(ClusterState& state,
                                                      const std::string& id)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Explains which of the tenant's devices are held up, and by what. Returns
// NotFound (TENANT_UNKNOWN).
absl::StatusOr<v1::TenantExplanation> ExplainTenant(ClusterState& state,
                                                    const std::string& name)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns InvalidArgument (PHASE_UNKNOWN, POLICY_UNKNOWN) for a request that
// names an unknown phase or policy.
absl::Status CheckTry(const v1::TryPlacementRequest& request);

// Returns where a session of this kind would be placed, and changes nothing.
// Returns the errors of Admin.TryPlacement in admin.proto.
absl::StatusOr<v1::TryPlacementResponse> TryPlacement(
    ClusterState& state, const v1::TryPlacementRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::explain

#endif  // COORDINATOR_ADMIN_EXPLAIN_H_
