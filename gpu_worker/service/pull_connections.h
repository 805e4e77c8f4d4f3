// Pull calls of other workers on this machine, over shared memory: the
// connections that they opened, each of which carries one call after the other.
//
// A call is a PullRequest; it is answered with PullResponses that say something
// and with bulk chunks, numbered like the calls of the connection, that hold
// the bytes. What is refused ends the connection with the reason. A caller that
// takes nothing from one Tick() to the next is cut off: what was offered is its
// session's memory until then.
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
  // What fits is written without waiting for whoever takes it: the first eight
  // chunks in the turn of the offer, the rest by the connection's own thread.
  static constexpr RingSizes kRingSizes = {.control = 64 << 10,
                                           .bulk = 4 << 20};

  // The core outlives this. Peers that are told of the end have
  // `close_timeout` to say that they heard of it.
  explicit PullConnections(WorkerCore* core,
                           absl::Duration close_timeout = absl::Seconds(2))
      : core_(core), close_timeout_(close_timeout) {}
  // Ends all, and waits for their threads.
  ~PullConnections();

  void Add(SharedConnection shared);
  // Forgets those that ended, and cuts off who takes nothing. To be called now
  // and then.
  void Tick();

  size_t count() const;

 private:
  class Connection;

  // Of those that are left; the others are let go of by the caller.
  std::vector<std::shared_ptr<Connection>> TakeEnded();

  WorkerCore* const core_;
  const absl::Duration close_timeout_;
  mutable Mutex mu_;
  std::vector<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_PULL_CONNECTIONS_H_
