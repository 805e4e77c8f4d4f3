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

// Returns everything that another process needs to continue, under the keys of
// coordinator_state.proto. The program memory in it may be ten seconds old,
// unless the cluster has stopped; it is encoded without the lock.
std::map<std::string, std::string> Save(ClusterState& state)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Notes that the store now holds the state that Save() returned last, where
// another process will find it. Only from then on do workers learn that their
// reports are settled, and do new keys sign leases.
void NoteKept(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

// Applies what an earlier process saved. Call it before the first stream. From
// then on only leases that known keys signed are believed. Returns DataLoss
// (STORE_CORRUPT), which names the entry that cannot be read, and changes
// nothing. Unreadable entries of the program memory are left out instead.
absl::Status Restore(ClusterState& state,
                     const std::map<std::string, std::string>& entries)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::persistence

#endif  // COORDINATOR_PERSISTENCE_PERSISTENCE_H_
