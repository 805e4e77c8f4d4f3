// Lets workers that are about to stop leave the cluster: without new leases,
// and with their virtual devices migrating to other workers.
#ifndef COORDINATOR_CLUSTER_DEPARTURE_H_
#define COORDINATOR_CLUSTER_DEPARTURE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker.h"
#include "djinn/v1/worker_departure.pb.h"

namespace djinn::coordinator::departure {

// How long a worker counts as leaving after its last call.
inline constexpr absl::Duration kValidFor = absl::Seconds(10);

// Serves WorkerDeparture.Leave. Errors as there.
absl::StatusOr<v1::LeaveProgress> Leave(ClusterState& state,
                                        const v1::LeaveRequest& request)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns whether a worker whose stream ended has left in order: it said so, or
// an operator drained it, and no lease or use of one is left there.
bool HasLeft(const ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends departures that are over, because the worker has not called in time or
// another process has taken its place. The departure of a worker that has left
// stays as long, in case only its stream broke.
void Expire(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::departure

#endif  // COORDINATOR_CLUSTER_DEPARTURE_H_
