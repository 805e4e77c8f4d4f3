// Lets a session go on at a worker on the program's own machine when the
// cluster gives it none.
//
// The link asks the cluster first, for every virtual device. When the cluster
// has given no worker for `patience`, or only one that the session could not
// reach twice, the link starts a coordinator and a worker as child processes,
// attaches the session there under the same id, and grants a lease of that
// worker. From then on it asks the cluster again and again. When that grants a
// worker, the link ends the local lease with FALLBACK_ENDED. The device reads
// its values back, binds again, and installs them there. A device stays, and
// gets no further offer, if it cannot be replayed, or comes back within a
// minute because it could not go on at the cluster's worker.
//
// Each change is logged, and reported to the cluster's operators. Without this
// link there is no fallback.
#ifndef CLIENT_LIB_CLUSTER_LOCAL_FALLBACK_H_
#define CLIENT_LIB_CLUSTER_LOCAL_FALLBACK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/model/links.h"

namespace djinn {

// The beginning of the ids of local workers, and of their placement reasons.
inline constexpr char kLocalWorkerPrefix[] = "local-";
inline constexpr char kLocalReason[] = "local fallback: ";

// A cluster on this machine. Its processes end with it.
struct LocalCluster {
  // Destroyed before the processes.
  std::shared_ptr<void> processes;
  // Not yet opened.
  std::unique_ptr<CoordinatorLink> link;
  std::shared_ptr<WorkerConnector> connector;
};

struct FallbackOptions {
  // Time for which the cluster may look for a worker, at most half of the time
  // that a device waits for one.
  absl::Duration patience = absl::Seconds(10);
  // Pause between two questions whether the cluster has a worker again.
  absl::Duration return_interval = absl::Seconds(5);
  // Starts a local cluster within `timeout`. The link attaches to it under
  // `session_id`, which is empty if the cluster's coordinator was not reached.
  std::function<absl::StatusOr<LocalCluster>(const std::string& session_id,
                                             absl::Duration timeout)>
      start;
  // Time for which a device may leave its local worker before the lease that
  // the cluster granted it is returned. One that takes longer asks again.
  absl::Duration offer_life = absl::Seconds(10);
};

// The two halves of a session with a fallback.
struct FallbackLinks {
  std::unique_ptr<CoordinatorLink> link;
  std::unique_ptr<WorkerConnector> connector;
};

// Puts the fallback before the links to the cluster. The halves share their
// state and may be destroyed in any order.
FallbackLinks WithFallback(std::unique_ptr<CoordinatorLink> link,
                           std::unique_ptr<WorkerConnector> connector,
                           FallbackOptions options);

// Returns a function that starts a coordinator and a CPU worker with this
// number of threads.
std::function<absl::StatusOr<LocalCluster>(const std::string&, absl::Duration)>
LocalClusterStarter(int worker_threads);

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_LOCAL_FALLBACK_H_
