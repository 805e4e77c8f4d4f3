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
#include "scheduler/placement/request.h"

namespace djinn::coordinator::placement {

struct PolicyChoice {
  const scheduler::Policy* policy = nullptr;
  // Named as in KeptDecision::policy_source.
  const char* source = "";
};

// InvalidArgument (POLICY_UNKNOWN). An empty name leaves the choice to
// others.
absl::Status CheckPolicy(const std::string& name);

// `tenant` may be null.
PolicyChoice PolicyFor(const Config& config, const std::string& of_request,
                       const std::string& of_session, const Tenant* tenant);

// Asks for no more than a lease of the tenant may hold. Of contents that are
// somewhere already, those count that the tenant has there: what others have
// must neither show nor be felt. All but `tenant`, which may be null, outlive
// the request.
scheduler::Request RequestFor(ClusterState& state, const Session& session,
                              const PendingLease& pending, const Tenant* tenant,
                              const SharedWork& work)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Decides where the request goes, or why nowhere. Counts the decision.
KeptDecision Decide(ClusterState& state, const scheduler::Request& request,
                    const PolicyChoice& choice)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Offers the pending request to a worker, notes why there is none for now, or
// refuses it.
void TryPlace(ClusterState& state, MemberId device, Session* session,
              Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tries some of those again that wait for a worker, in their order.
void RetryUnplaced(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tries them as RetryUnplaced() does, unless that would take more than a
// quarter of the time: then the next tick does. For events that every worker
// causes.
void RetryInTime(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::placement

#endif  // COORDINATOR_CLUSTER_PLACEMENT_PLACEMENT_H_
