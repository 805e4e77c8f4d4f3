// Handles the streams of workers and applies their reports.
#ifndef COORDINATOR_CLUSTER_WORKERS_H_
#define COORDINATOR_CLUSTER_WORKERS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator::workers {

// Binds a worker's new stream and applies its first report. If the worker has
// restarted, ends the leases of its earlier process. Wakes `waker` when
// NextDesiredState() may have something. Returns the errors of
// WorkerRegistry.Synchronize in worker_registry.proto.
absl::StatusOr<StreamId> Join(ClusterState& state,
                              const v1::WorkerState& report,
                              const std::shared_ptr<Waker>& waker)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Applies a report; grants the offered leases that it acknowledges. Returns
// InvalidArgument (PROTOCOL_VIOLATION) when it is another worker's,
// acknowledges a revision that was never sent, or is malformed; Unavailable
// (STREAM_REPLACED) when the worker has another stream.
absl::Status Report(ClusterState& state, const StreamId& worker,
                    const v1::WorkerState& report)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes that the stream ended. Forgets the worker if it has left in order, by
// departure::HasLeft(). Otherwise it and its granted leases stay until
// LoseSilent() gives them up; requests with an offered lease there get another
// worker at once. Does nothing when the worker has another stream.
void Leave(ClusterState& state, const StreamId& worker)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes workers that have not reported for worker_silence, so that others are
// preferred to them, and has the requests with an offered lease there try
// others. Marks workers that have not reported for worker_timeout as lost, and
// ends their leases. Forgets workers that were lost long ago.
void LoseSilent(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Wakes the streams for which a heartbeat is due.
void SendHeartbeats(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the next message if something changed or a heartbeat is due;
// otherwise nothing. A status ends the stream: Unavailable (STREAM_REPLACED)
// when the worker has another stream or the coordinator stops.
absl::StatusOr<std::optional<v1::DesiredState>> NextDesiredState(
    ClusterState& state, const StreamId& worker) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::workers

#endif  // COORDINATOR_CLUSTER_WORKERS_H_
