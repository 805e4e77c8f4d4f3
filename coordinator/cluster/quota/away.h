// Takes back what sessions hold whose client is away, when another session of
// their tenant needs it.
//
// Over gRPC, a killed client and a cut network look alike, so a session without
// streams is kept. Its client is away once no stream has led to the coordinator
// for a second and no worker reports one. It then loses its leases, or ends, as
// soon as the tenant's limits demand that: the one that is away for the longest
// time comes first. A client that comes back recovers as from a lost worker.
// Workers do the same with memory (gpu_worker/streams/stream_table.h).
#ifndef COORDINATOR_CLUSTER_QUOTA_AWAY_H_
#define COORDINATOR_CLUSTER_QUOTA_AWAY_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"

namespace djinn::coordinator::away {

// Ends leases of the tenant's sessions whose clients are away until another
// lease of the tenant fits into its quota. Ends none if all of them together
// hold too little.
void MakeRoom(ClusterState& state, const Tenant& tenant, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the tenant's session whose client has been away for the longest time;
// null if none is away.
Session* Longest(ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the monotonic time at which the next of the tenant's sessions without
// a stream counts as away or times out; infinity when all have a stream.
absl::Duration NextTime(const ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::away

#endif  // COORDINATOR_CLUSTER_QUOTA_AWAY_H_
