// What outlives the process.
#ifndef COORDINATOR_CLUSTER_PERSISTENCE_H_
#define COORDINATOR_CLUSTER_PERSISTENCE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/waker.h"

namespace djinn::coordinator::persistence {

// As Cluster::Save(). Takes the lock itself, and encodes what was learnt
// without it.
std::map<std::string, std::string> Save(ClusterState& state)
    ABSL_LOCKS_EXCLUDED(state.mu);

// As Cluster::NoteKept().
void NoteKept(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Restore(). Takes the lock itself, once all is read.
absl::Status Restore(ClusterState& state,
                     const std::map<std::string, std::string>& saved)
    ABSL_LOCKS_EXCLUDED(state.mu);

// The lease of an earlier process is known now, or over: it holds nothing of a
// quota any more. Nothing when there is none.
std::optional<RestoredLease> TakeRestored(ClusterState& state,
                                          const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The same for all of which that is so.
void ForgetRestored(ClusterState& state,
                    absl::FunctionRef<bool(const RestoredLease&)> which)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Nobody will tell any more of what an earlier process granted.
void GiveUpRestored(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::persistence

#endif  // COORDINATOR_CLUSTER_PERSISTENCE_H_
