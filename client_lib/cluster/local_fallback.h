// Lets a session go on at a worker on the program's own machine when the
// cluster gives it none.
//
// The link asks the cluster first, for every virtual device. When the cluster
// has given no worker for `patience`, or only one that the session could not
// reach twice, the link starts a coordinator and a worker as child processes,
// attaches the session there under the same id, and grants a lease of that
// worker. If the cluster's coordinator was not reached at all, the session
// opens at the local one, and the link tries the cluster's again and again
// under the same id. It asks the cluster for a worker again and again. When
// that grants a worker, the link ends the local lease with FALLBACK_ENDED. The
// device reads its values back, binds again, and installs them there. A device
// stays, and gets no further offer, if it cannot be replayed, or comes back
// within a minute because it could not go on at the cluster's worker.
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
#include "client_lib/cluster/local_clusters.h"
#include "client_lib/session/model/links.h"

namespace djinn {

// The beginning of the placement reasons of local workers.
inline constexpr char kLocalReason[] = "local fallback: ";

struct FallbackOptions {
  // Time for which the cluster may look for a worker, at most half of the time
  // that a device waits for one.
  absl::Duration patience = absl::Seconds(10);
  // Pause between two questions whether the cluster has a worker again.
  absl::Duration return_interval = absl::Seconds(5);
  // Threads of a local worker, unless it takes over from a worker of the
  // cluster, whose number of threads it then gets.
  int worker_threads = 0;
  LocalClusters::StartFunction start;
  // Makes another link to the cluster's coordinator, for this session.
  std::function<absl::StatusOr<std::unique_ptr<CoordinatorLink>>(
      const std::string& session_id)>
      reopen;
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

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_LOCAL_FALLBACK_H_
