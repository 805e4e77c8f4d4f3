// Leases that workers report and nobody knows: this process may have restarted.
#ifndef COORDINATOR_CLUSTER_ADOPTION_H_
#define COORDINATOR_CLUSTER_ADOPTION_H_

#include <set>
#include <string>

#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/waker.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator::adoption {

// Takes over a lease that a worker reports and nobody knows, except its
// limits, which are the configuration's, and tenants that are not in there.
// Of two of one virtual device the newer one stays. One that has ended the
// worker is told of. `passed`: sessions that have left the worker, as far as
// this lease goes.
void Adopt(ClusterState& state, const v1::SignedLease& reported, Worker* worker,
           std::set<std::string>* passed, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::adoption

#endif  // COORDINATOR_CLUSTER_ADOPTION_H_
