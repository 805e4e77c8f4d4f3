// Creates a cluster's state, lets time pass in it, and stops it.
//
// A stream is known by a number. Its adapter hands over what it receives, and
// asks for the next message whenever its Waker was woken. So nothing queues up
// behind a slow peer: a worker gets the changes since its last message, and a
// client's outbox is bounded by its devices. Everything that waits for time
// happens in Tick().
//
// A lease is listed to its worker first. The client learns of it when the
// worker has acknowledged it. A session that ends is dropped at its workers by
// name, until they report that it is gone. A session that a worker reports and
// the cluster does not know is adopted, since this process may have restarted.
//
// The rules are functions over ClusterState, one header for each concern. The
// functions that streams and operators call take the lock themselves.
#ifndef COORDINATOR_CLUSTER_CLUSTER_H_
#define COORDINATOR_CLUSTER_CLUSTER_H_

#include <memory>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "coordinator/config/config.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"

namespace djinn::coordinator {

// Returns the state of a cluster without sessions and workers, with keys and
// quotas in force. All arguments must outlive it.
std::unique_ptr<ClusterState> MakeCluster(const Config* config,
                                          Tenants* tenants, Clock* clock,
                                          RandomSource* random);

// Does everything that is due: loses silent workers, ends sessions and requests
// that timed out, tries waiting requests again, advances migrations, and wakes
// the streams that owe a heartbeat. Must be called often compared to the
// heartbeat interval.
void Tick(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

// Ends every stream with Unavailable (COORDINATOR_STOPPING), including those
// that are opened later, and all inquiries about runs.
void Stop(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_CLUSTER_H_
