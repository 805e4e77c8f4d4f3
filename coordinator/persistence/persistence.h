// Saves and restores cluster state.
#ifndef COORDINATOR_PERSISTENCE_PERSISTENCE_H_
#define COORDINATOR_PERSISTENCE_PERSISTENCE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"

namespace djinn::coordinator::persistence {

// Returns everything that another process needs to go on, by the keys of
// coordinator_state.proto. The tuning cache is up to ten seconds old, unless
// the cluster has stopped; it is encoded without the lock.
std::map<std::string, std::string> Save(ClusterState& state)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes that what Save() returned last is where another process will find it.
// Only then are workers told that their reports are settled, and do new keys
// begin to sign.
void NoteKept(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

// Applies what an earlier process saved; called before the first stream. From
// then on only leases that its keys signed are believed. DataLoss
// (STORE_CORRUPT) names an entry that cannot be read, unless it is part of the
// tuning cache, which is left out.
absl::Status Restore(ClusterState& state,
                     const std::map<std::string, std::string>& entries)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::persistence

#endif  // COORDINATOR_PERSISTENCE_PERSISTENCE_H_
