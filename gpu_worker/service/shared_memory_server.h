// Takes clients of this machine and user over shared memory: accepts on a Unix
// socket, offers each a region, and hands the stream to the core. Beyond
// kMaxConnections a client is turned away, and comes over gRPC.
#ifndef GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_
#define GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {

class SharedMemoryServer {
 public:
  // Each may take the size of its region in memory.
  static constexpr int kMaxConnections = 64;

  // Unavailable when nobody can listen at `path`. The core outlives the server.
  static absl::StatusOr<std::unique_ptr<SharedMemoryServer>> Start(
      const std::string& path, WorkerCore* core);

  // Accepts no more; streams go on until the core ends them.
  ~SharedMemoryServer();

 private:
  SharedMemoryServer(Descriptor listener, Descriptor stop, WorkerCore* core)
      : listener_(std::move(listener)), stop_(std::move(stop)), core_(core) {}

  void Run();
  absl::Status Serve(Descriptor socket);

  const Descriptor listener_;
  const Descriptor stop_;
  WorkerCore* const core_;
  // As many references as there are connections, and this one.
  const std::shared_ptr<const int> permits_ = std::make_shared<const int>();
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_SHARED_MEMORY_SERVER_H_
