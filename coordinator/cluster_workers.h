// Worker streams, and what a report means. Above all that learns from reports.
#ifndef COORDINATOR_CLUSTER_WORKERS_H_
#define COORDINATOR_CLUSTER_WORKERS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/stream_id.h"
#include "coordinator/waker.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator::workers {

// The protocol's version that both sides speak.
absl::Status CheckJoin(const v1::WorkerState& report);

// As Cluster::Join(), of a report that was checked.
absl::StatusOr<StreamId> Join(ClusterState& state,
                              const v1::WorkerState& report,
                              const std::shared_ptr<Waker>& waker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Report(), of a report that WorkerRegistry::Check() let pass.
absl::Status Report(ClusterState& state, const StreamId& worker,
                    const v1::WorkerState& report, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Leave().
void Leave(ClusterState& state, const StreamId& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends what there is of workers that have not reported for too long, and
// forgets those that were lost long ago.
void LoseSilent(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Wakes those that a heartbeat is due for.
void SendHeartbeats(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::NextDesiredState().
absl::StatusOr<std::optional<v1::DesiredState>> NextDesiredState(
    ClusterState& state, const StreamId& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::workers

#endif  // COORDINATOR_CLUSTER_WORKERS_H_
