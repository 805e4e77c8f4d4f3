// Serves clients, or other workers, of this machine and user over shared
// memory: accepts on a Unix socket, offers each peer a region, and hands the
// connection on. Refuses peers beyond kMaxConnections, which then use gRPC.
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
  // Each connection may take the size of its region in memory.
  static constexpr int kMaxConnections = 64;

  struct Options {
    std::string path;
    // A socket that listens at `path` already; -1 if the server must bind it.
    // The server owns it.
    int listener = -1;
    // The sizes for each connection.
    RingSizes ring_sizes;
    // Regions of these sizes, for a process that can make none, which outlive
    // the server; null: the server makes one for each connection.
    RegionPool* regions = nullptr;
    // The worker's incarnation, by which its peers recognise it.
    uint64_t incarnation = 0;
    // Receives each connection, in the server's thread.
    std::function<void(SharedConnection)> serve;
    // Called in the server's thread about every `tick_interval`, even while
    // peers connect; may be null.
    std::function<void()> tick;
    absl::Duration tick_interval = absl::Seconds(30);
    Clock* clock = Clock::Real();
  };

  // Returns Unavailable when the server cannot listen at the path.
  static absl::StatusOr<std::unique_ptr<SharedMemoryServer>> Start(
      Options options);

  // Stops accepting; connections go on.
  ~SharedMemoryServer();

 private:
  SharedMemoryServer(Options options, Descriptor listener, Descriptor stop)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        next_tick_(options_.clock->Monotonic() + options_.tick_interval) {}

  void Run();
  // Ticks if a tick is due. Returns the timeout for poll(), in milliseconds.
  int TickIfDue();
  absl::Status Serve(Descriptor socket);

  const Options options_;
  const Descriptor listener_;
  const Descriptor stop_;
  // Has one reference per connection, and this one.
  const std::shared_ptr<const int> permits_ = std::make_shared<const int>();
  // The server's thread owns it; by the clock.
  absl::Duration next_tick_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_
