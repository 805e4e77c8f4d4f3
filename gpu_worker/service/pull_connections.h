// Serves Pull calls of other workers on this machine over shared memory. Each
// connection that they open carries one call after the other.
//
// A call is a PullRequest. The answers are PullResponses, and bulk chunks with
// the bytes, numbered like the calls of the connection. A refused call ends the
// connection with the reason. A caller that takes nothing from one Tick() to
// the next is cut off, because the offered bytes are its session's memory until
// then.
//
// Thread-safe.
#ifndef GPU_WORKER_SERVICE_PULL_CONNECTIONS_H_
#define GPU_WORKER_SERVICE_PULL_CONNECTIONS_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {

class PullConnections {
 public:
  // The bytes that fit are written without waiting for the caller: the first
  // eight chunks in the turn of the offer, the rest by the connection's own
  // thread.
  static constexpr RingSizes kRingSizes = {.control = 64 << 10,
                                           .bulk = 4 << 20};

  // The core must outlive this. When this stops, peers have `close_timeout` to
  // acknowledge the end.
  explicit PullConnections(WorkerCore* core,
                           absl::Duration close_timeout = absl::Seconds(2))
      : core_(core), close_timeout_(close_timeout) {}
  // Ends all connections, and waits for their threads.
  ~PullConnections();

  void Add(SharedConnection shared);
  // Forgets connections that ended, and cuts off callers that take nothing. The
  // owner calls it periodically.
  void Tick();

  size_t count() const;

 private:
  class Connection;

  // Takes out the connections that ended; the caller releases them.
  std::vector<std::shared_ptr<Connection>> TakeEnded();

  WorkerCore* const core_;
  const absl::Duration close_timeout_;
  mutable Mutex mu_;
  std::vector<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_PULL_CONNECTIONS_H_
