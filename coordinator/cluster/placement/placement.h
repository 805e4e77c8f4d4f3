// Chooses the worker of a virtual device, and tries waiting requests again.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_PLACEMENT_H_
#define COORDINATOR_CLUSTER_PLACEMENT_PLACEMENT_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/config/config.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "scheduler/placement/policy.h"
#include "scheduler/placement/terms.h"

namespace djinn::coordinator::placement {

struct PolicyChoice {
  const scheduler::Policy* policy = nullptr;
  // Names the setter of the policy, as KeptDecision::policy_source does.
  const char* source = "";
};

// Returns InvalidArgument (POLICY_UNKNOWN) unless a policy has this name. An
// empty name is valid: the policy is then set elsewhere, see PolicyFor().
absl::Status CheckPolicy(const std::string& name);

// Returns the policy that the request names. If it names none, returns that of
// the session, then that of the tenant, which may be null, then that of the
// configuration, and otherwise the default policy. The names passed
// CheckPolicy().
PolicyChoice PolicyFor(const Config& config, const std::string& of_request,
                       const std::string& of_session, const Tenant* tenant);

// Returns the scheduler's request for the pending lease. It asks for no more
// memory than a lease of the tenant may hold. It counts only contents that the
// tenant itself has on a worker: a session must not learn what others have
// there. All arguments must outlive the result, but for `tenant`, which may be
// null.
scheduler::Request RequestFor(ClusterState& state, const Session& session,
                              const PendingLease& pending, const Tenant* tenant,
                              const SharedWork& work)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the worker that suits the request best by the policy, or the reason
// why no worker suits. Records how long the decision took.
KeptDecision Decide(ClusterState& state, const scheduler::Request& request,
                    const PolicyChoice& choice)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tries to place the session's pending request. Offers a lease at a worker; or
// leaves the request in the wait queue with its obstacle; or erases the request
// and refuses the client, if waiting will not help. May end leases of tenants
// that have borrowed quota.
void TryPlace(ClusterState& state, MemberId device, Session* session,
              Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tries waiting requests again in their order, as many as are tried at once,
// and reviews for which of them a worker is reserved.
void RetryUnplaced(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tries waiting requests again as RetryUnplaced() does, or leaves them to the
// next tick, so that retries take at most a quarter of the time. Call it for
// events that every worker causes.
void RetryInTime(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::placement

#endif  // COORDINATOR_CLUSTER_PLACEMENT_PLACEMENT_H_
