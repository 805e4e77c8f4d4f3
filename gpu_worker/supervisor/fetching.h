// Fetches values of other workers for executors, whose sandboxes have no
// network.
//
// An executor asks the supervisor over its own socket (the service Fetching),
// and the supervisor asks the other worker over the network. Credentials and
// connections stay with the supervisor. It fetches for an executor only values
// that were offered to one of that executor's sessions. Bytes pass through the
// supervisor chunk by chunk; it keeps none.
#ifndef GPU_WORKER_SUPERVISOR_FETCHING_H_
#define GPU_WORKER_SUPERVISOR_FETCHING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/pull/peer_pulls.h"

namespace djinn::worker {

// The supervisor's side. Thread-safe.
class FetchingServer {
 public:
  // Returns whether the executor with this number has a lease of the session.
  // Any thread calls it, without locks.
  using HasSession =
      std::function<bool(uint64_t executor, const std::string& session_id)>;

  // Most calls of one executor at a time. A session has one at most.
  static constexpr size_t kMaxCalls = 256;

  // `pulls`, which the caller shuts down, must outlive this and all that
  // Serve() returns. `worker_id` is this worker's own.
  FetchingServer(std::string worker_id, PullSource* pulls,
                 HasSession has_session);

  // Serves the executor at the other end of the socket, until the result is
  // destroyed. Destroying it cancels the executor's calls and waits for them;
  // no lock may be held then.
  std::shared_ptr<void> Serve(uint64_t executor, Descriptor socket);

 private:
  const std::string worker_id_;
  PullSource* const pulls_;
  const HasSession has_session_;
};

// The executor's side: asks the supervisor at the other end of the socket for
// every worker's values. Its calls must end before it does.
std::unique_ptr<PeerConnector> MakeSupervisorPeers(Descriptor socket);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_FETCHING_H_
