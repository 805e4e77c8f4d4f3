// Handles leases of an earlier process that no worker has reported yet. They
// hold their tenants' quota until they are adopted or forgotten.
#ifndef COORDINATOR_CLUSTER_LEASES_RESTORED_H_
#define COORDINATOR_CLUSTER_LEASES_RESTORED_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"

namespace djinn::coordinator::restored {

// Removes the restored lease, returns its quota to the tenant, and returns the
// lease. Returns nothing when there is no such lease. Called when the lease is
// adopted, or has ended.
std::optional<RestoredLease> Take(ClusterState& state,
                                  const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes every restored lease for which `which` returns true, and returns its
// quota.
void Forget(ClusterState& state,
            absl::FunctionRef<bool(const RestoredLease&)> which)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Stops waiting for workers to report what an earlier process granted. Forgets
// all restored leases and workers, and retires the accounts for which no worker
// has to report any more.
void GiveUp(ClusterState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::restored

#endif  // COORDINATOR_CLUSTER_LEASES_RESTORED_H_
