// Adopts leases that workers report and the cluster does not know, because this
// process may have restarted.
#ifndef COORDINATOR_CLUSTER_ADOPTION_H_
#define COORDINATOR_CLUSTER_ADOPTION_H_

#include <set>
#include <string>

#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator::adoption {

// Adopts a lease that a worker reports and the cluster does not know. Its
// limits come from the configuration. Of two leases of one virtual device the
// newer one stays. Has the worker end a lease that has ended, and drop a
// session that has ended or whose tenant is not configured. Adds to `passed`
// the sessions whose lease the worker must end; the caller calls
// notifications::LeaveWorker() for them. Ignores a lease that is malformed or
// not signed for this worker.
void Adopt(ClusterState& state, const v1::SignedLease& reported, Worker* worker,
           std::set<std::string>* passed, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::adoption

#endif  // COORDINATOR_CLUSTER_ADOPTION_H_
