// Takes clients, or other workers, of this machine and user over shared memory:
// accepts on a Unix socket, offers each a region, and hands the connection on.
// Beyond kMaxConnections a peer is turned away, and comes over gRPC.
#ifndef GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_
#define GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {

class SharedMemoryServer {
 public:
  // Each may take the size of its region in memory.
  static constexpr int kMaxConnections = 64;

  struct Options {
    std::string path;
    // Of each connection.
    RingSizes ring_sizes;
    // The worker's, for its peers to know that it is the one they look for.
    uint64_t incarnation = 0;
    // Gets each connection, in the server's thread.
    std::function<void(SharedConnection)> serve;
    // Called there about as often, whoever connects meanwhile; may be null.
    std::function<void()> tick;
    absl::Duration tick_interval = absl::Seconds(30);
    Clock* clock = Clock::Real();
  };

  // Unavailable when nobody can listen at the path.
  static absl::StatusOr<std::unique_ptr<SharedMemoryServer>> Start(
      Options options);

  // Accepts no more; connections go on.
  ~SharedMemoryServer();

 private:
  SharedMemoryServer(Options options, Descriptor listener, Descriptor stop)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        next_tick_(options_.clock->Monotonic() + options_.tick_interval) {}

  void Run();
  // Ticks when it is time to. Returns for how long poll() may wait, as it takes
  // it.
  int TickIfDue();
  absl::Status Serve(Descriptor socket);

  const Options options_;
  const Descriptor listener_;
  const Descriptor stop_;
  // As many references as there are connections, and this one.
  const std::shared_ptr<const int> permits_ = std::make_shared<const int>();
  // The thread's, of the clock.
  absl::Duration next_tick_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_
