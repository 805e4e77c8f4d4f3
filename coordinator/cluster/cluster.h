// The life of a cluster's state: it is made, time passes, it stops.
//
// Streams come and go by number. A stream's adapter hands over what it receives
// and asks for the next message whenever its Waker was woken, so nothing queues
// up behind a slow peer: a worker gets the changes since its last message, a
// client's outbox is bounded by its devices. Everything that waits for time
// happens in Tick().
//
// A lease is listed to its worker first; the client hears of it when the worker
// has acknowledged it. A session that ends is dropped at its workers by name,
// until they report that it is gone. Sessions that a worker reports and the
// cluster does not know are adopted: this process may have restarted.
//
// The rules are functions over ClusterState, one header for each concern. Those
// that streams and operators call take the lock themselves.
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

// Returns the state of a cluster without sessions and workers. All arguments
// must outlive it.
std::unique_ptr<ClusterState> MakeCluster(const Config* config,
                                          Tenants* tenants, Clock* clock,
                                          RandomSource* random);

// Lets time-outs take effect and sends heartbeats. Must be called often
// compared to the heartbeat interval.
void Tick(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

// Ends every stream with Unavailable (COORDINATOR_STOPPING), for good.
void Stop(ClusterState& state) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_CLUSTER_H_
