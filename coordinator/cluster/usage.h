// Bills the use of leases that workers report.
#ifndef COORDINATOR_CLUSTER_USAGE_H_
#define COORDINATOR_CLUSTER_USAGE_H_

#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator::usage {

// Bills the use of leases as the worker's report states it, and tops up their
// grants. Ends leases that the worker reports as ended. Settles the account of
// an ended lease once the worker knows of the end and has nothing more to
// report.
void Absorb(ClusterState& state, const v1::WorkerState& report, Worker* worker,
            Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::usage

#endif  // COORDINATOR_CLUSTER_USAGE_H_
