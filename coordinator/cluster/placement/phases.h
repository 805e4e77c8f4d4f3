// Tells workers the phases of their graphs, and which slots hold caches.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_PHASES_H_
#define COORDINATOR_CLUSTER_PLACEMENT_PHASES_H_

#include <string>

#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator::phases {

// Drops those of the worker's untold graphs whose phase is not known, and wakes
// its stream if any remain. Call it after a report has named graphs.
void NoteUntold(ClusterState& state, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Adds the phases of the worker's untold graphs to its next message, as many as
// one message takes. The rest follows in another message at once.
void List(ClusterState& state, Worker* worker, v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Sends the graph's phases, which have become known or have changed, to the
// workers that report the graph.
void Tell(ClusterState& state, const std::string& fingerprint, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::phases

#endif  // COORDINATOR_CLUSTER_PLACEMENT_PHASES_H_
