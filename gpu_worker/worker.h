// Runs a whole worker in this process: device, core, gRPC server and the stream
// to the coordinator.
#ifndef GPU_WORKER_WORKER_H_
#define GPU_WORKER_WORKER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/net/call_metrics.h"
#include "common/net/channel_pool.h"
#include "common/net/monitoring/monitoring_port.h"
#include "common/net/monitoring/readiness.h"
#include "common/net/server.h"
#include "common/net/tls/tls_from_memory.h"
#include "common/net/unproven_connections.h"
#include "common/trace/span_exporter.h"
#include "djinn/v1/worker_departure.pb.h"
#include "gpu_worker/config.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/nvml/gpu_monitor.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/pull/shared_memory_peers.h"
#include "gpu_worker/registry/departure.h"
#include "gpu_worker/registry/synchronizer.h"
#include "gpu_worker/service/pull_connections.h"
#include "gpu_worker/service/shared_memory_server.h"
#include "gpu_worker/settings.h"

namespace djinn::worker {

class ExecutionService;

// Replaces parts of a worker that is the executor of one tenant.
struct ExecutorSeams {
  // Connects to the supervisor.
  std::unique_ptr<RegistryConnector> registry;
  uint64_t incarnation = 0;
  // Inherited sockets that listen for clients; -1: none.
  int listener = -1;
  int shared_memory_listener = -1;
  // The certificate, which outlives the worker; null: there is no TLS.
  TlsFromMemory* tls = nullptr;
  // Shares the device with other executors; null: the executor has it alone.
  TurnGate* gate = nullptr;
  // Fetches the values of other workers.
  std::unique_ptr<PeerConnector> peers;
  // Takes the spans of traced runs, and outlives the worker; may be null.
  SpanSink* spans = nullptr;
  // Keeps contents at the supervisor; null: the supervisor keeps none.
  std::shared_ptr<ContentStore> contents;
};

// Serves from Start() until Stop(). Not thread-safe.
class Worker {
 public:
  // Starts a worker. Returns the errors of Server::Start() and
  // MakeGrpcRegistry(); a coordinator that does not run yet is no error.
  // `clock` and `random` must outlive the worker. A thread of the worker calls
  // `device_broken`, which may be null, once, when the device can serve no
  // client any more.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(
      const WorkerConfig& config, std::unique_ptr<Device> device, Clock* clock,
      RandomSource* random,
      std::function<void(const absl::Status&)> device_broken = nullptr);
  // Starts an executor. It serves no client before AcceptClients(), and gRPC
  // health says that it does not serve before SetServing(). It reads files now
  // and never later.
  static absl::StatusOr<std::unique_ptr<Worker>> StartExecutor(
      const WorkerConfig& config, ExecutorSeams seams,
      std::unique_ptr<Device> device, Clock* clock, RandomSource* random,
      std::function<void(const absl::Status&)> device_broken);

  // Calls Stop().
  ~Worker();

  // Returns the address at which clients reach the worker.
  const std::string& address() const { return server_->address(); }
  // Returns the address of the monitoring port; empty when none is configured.
  std::string monitoring_address() const {
    return monitoring_ == nullptr ? "" : monitoring_->address();
  }
  Readiness* readiness() { return readiness_.get(); }

  // Like Settings::Reload().
  void Reload(const absl::StatusOr<WorkerConfig>& read);

  // Makes the worker not ready, and lets its virtual devices migrate to other
  // workers, as AwaitDeparture() says, for at most the configuration's
  // drain_timeout. Call it before Stop().
  void Drain(const WaitFunction& wait);

  // Returns DeviceWatch::available_bytes(), or 0.
  uint64_t available_bytes() const {
    return core_->device_watch()->available_bytes().value_or(0);
  }

  // See WorkerCore::MarkProgress().
  uint64_t MarkProgress() { return core_->MarkProgress(); }

  // Adds the worker's metrics to a scrape, except for those of its process.
  void Collect(Exposition* out) const;
  // Adds every metric that Collect() will ever add, with numbers that mean
  // nothing.
  void Declare(Exposition* out) const;

  // Serves the clients of an executor from now on. Call it once.
  absl::Status AcceptClients();
  // Sets what gRPC health says of an executor. Any thread may call it until
  // Stop().
  void SetServing(bool serving) { server_->SetServing(serving); }

  // Ends every client's session (DRAINING) and returns when everything has
  // stopped. Call it once.
  void Stop();

 private:
  Worker() = default;
  static WorkerCoreOptions CoreOptions(const WorkerConfig& config);
  // Starts the stream to the coordinator or the supervisor.
  void Synchronize(const WorkerConfig& config, RandomSource* random);
  // Serves clients over shared memory; binds the socket if `listener` is -1.
  absl::Status ServeSharedMemory(int listener);
  absl::Status StartSharedMemory(const WorkerConfig& config);
  std::vector<ReadinessCheck> CheckReadiness() const;
  absl::Status StartMonitoring(const WorkerConfig& config);

  // An executor's inherited socket, on which ServeSharedMemory() listens. -1:
  // there is none.
  int shared_memory_listener_ = -1;
  std::string shared_memory_socket_;
  // In order of construction; each field uses those before it.
  std::unique_ptr<Settings> settings_;
  std::unique_ptr<Device> device_;
  // Null when traces are not configured.
  std::unique_ptr<SpanExporter> spans_;
  std::unique_ptr<ChannelPool> peer_channels_;
  std::unique_ptr<PeerConnector> peers_;
  // Points to peers_ when it uses shared memory; otherwise null.
  SharedMemoryPeers* shared_memory_peers_ = nullptr;
  CallMetrics call_metrics_;
  UnprovenConnections unproven_;
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<ExecutionService> service_;
  std::unique_ptr<Server> server_;
  // Regions for shared_memory_; null: it makes its own.
  std::unique_ptr<RegionPool> regions_;
  // Shared-memory services for clients and for other workers; null when they
  // are not configured.
  std::unique_ptr<SharedMemoryServer> shared_memory_;
  std::unique_ptr<PullConnections> pull_connections_;
  std::unique_ptr<SharedMemoryServer> pull_server_;
  std::unique_ptr<RegistryConnector> registry_;
  Leaving leave_;
  v1::LeaveRequest leave_request_;
  // Null when the device is no GPU.
  std::unique_ptr<GpuMonitor> gpu_;
  std::unique_ptr<Synchronizer> synchronizer_;
  std::unique_ptr<Readiness> readiness_;
  // Null when it is not configured.
  std::unique_ptr<MonitoringPort> monitoring_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_WORKER_H_
