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

// The worker is to hear of its graphs' phases as far as they are known, and
// hears of some.
void NoteUntold(ClusterState& state, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Adds what the worker is to hear of, as much as one message takes.
void List(ClusterState& state, Worker* worker, v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The graph's phase is known now, to a tenant or by itself, or another
// one than before: the workers that have it are to hear of it.
void Tell(ClusterState& state, const std::string& fingerprint, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::phases

#endif  // COORDINATOR_CLUSTER_PLACEMENT_PHASES_H_
