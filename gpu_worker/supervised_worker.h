// Runs a worker whose tenants have separate processes. It consists of the
// supervisor of these executors, the stream to the coordinator, the calls to
// other workers, the watch of the device's memory and health, and a gRPC server
// that answers health checks and names executors' addresses. It has no device
// and executes nothing.
#ifndef GPU_WORKER_SUPERVISED_WORKER_H_
#define GPU_WORKER_SUPERVISED_WORKER_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/net/call_metrics.h"
#include "common/net/channel_pool.h"
#include "common/net/monitoring/monitoring_port.h"
#include "common/net/monitoring/readiness.h"
#include "common/net/server.h"
#include "common/net/tls/checked_tls_copies.h"
#include "common/net/tls/tls_files.h"
#include "common/net/unproven_connections.h"
#include "common/trace/span_exporter.h"
#include "gpu_worker/config.h"
#include "gpu_worker/nvml/gpu_monitor.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/registry/departure.h"
#include "gpu_worker/registry/synchronizer.h"
#include "gpu_worker/settings.h"
#include "gpu_worker/supervised_device.h"
#include "gpu_worker/supervisor/arbiter.h"
#include "gpu_worker/supervisor/contents/content_service.h"
#include "gpu_worker/supervisor/fetching.h"
#include "gpu_worker/supervisor/launcher.h"
#include "gpu_worker/supervisor/supervisor.h"

namespace djinn::worker {

class ExecutorAddressService;

// Serves from Start() until Stop(). Not thread-safe.
class SupervisedWorker {
 public:
  // Starts the first executor, and returns when it is ready. Returns how the
  // executor ended if it does not become ready, and the errors of
  // Worker::Start(). `clock` and `random` must outlive the worker.
  static absl::StatusOr<std::unique_ptr<SupervisedWorker>> Start(
      const WorkerConfig& config, Clock* clock, RandomSource* random);
  // Calls Stop().
  ~SupervisedWorker();

  const std::string& address() const { return server_->address(); }
  // Empty when no monitoring port is configured.
  std::string monitoring_address() const {
    return monitoring_ == nullptr ? "" : monitoring_->address();
  }
  // Like Settings::Reload().
  void Reload(const absl::StatusOr<WorkerConfig>& read);
  // Like Worker::Drain().
  void Drain(const WaitFunction& wait);
  // Makes executors end their clients' sessions (DRAINING), and returns when
  // everything has stopped. Call it once.
  void Stop();

 private:
  SupervisedWorker();
  void WatchDevice(const WorkerConfig& config, Clock* clock);
  std::vector<ReadinessCheck> CheckReadiness();
  absl::Status StartMonitoring(const WorkerConfig& config);
  // Creates the objects through which executors reach other workers.
  absl::Status ReachPeers(const WorkerConfig& config, Clock* clock);
  // Creates the service that keeps executors' contents, if the configuration
  // has one. Returns the errors of DiskStore::Open().
  absl::Status KeepContents(const WorkerConfig& config, Clock* clock,
                            RandomSource* random);
  // Sends the certificate to the executors if it is new, because they can open
  // no files. Returns CheckServerTls()'s errors if it was never fit.
  absl::Status PassTlsOn();
  // Runs the supervisor until Stop(), and then stops it.
  void Supervise();
  // Reports a change, once there is a stream.
  void NotifyChange();

  Clock* clock_ = nullptr;
  // In order of construction; each field uses those before it.
  std::unique_ptr<Settings> settings_;
  // Fetches values from other workers for executors.
  std::unique_ptr<ChannelPool> peer_channels_;
  std::unique_ptr<PeerConnector> peers_;
  std::unique_ptr<OfferTable> no_offers_;
  std::unique_ptr<PeerPulls> pulls_;
  std::unique_ptr<FetchingServer> fetching_;
  // Null when traces are not configured.
  std::unique_ptr<SpanExporter> spans_;
  // Null when no contents are kept outside of executors.
  std::unique_ptr<ContentService> contents_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<Arbiter> arbiter_;
  std::unique_ptr<Supervisor> supervisor_;
  // Belong to the thread, once it runs: the certificate that the executors
  // have, and the time at which its files were read.
  ServerTls tls_files_;
  TlsTexts tls_;
  absl::Duration tls_read_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::unique_ptr<ExecutorAddressService> service_;
  CallMetrics call_metrics_;
  UnprovenConnections unproven_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<RegistryConnector> registry_;
  Leaving leave_;
  v1::LeaveRequest leave_request_;
  // Null when the device is no GPU.
  std::unique_ptr<GpuMonitor> gpu_;
  std::unique_ptr<SupervisedDevice> device_;
  Mutex mu_;
  std::unique_ptr<Synchronizer> synchronizer_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Readiness> readiness_;
  // Null when it is not configured.
  std::unique_ptr<MonitoringPort> monitoring_;
};

// Returns the setup of every executor of the worker.
v1::ExecutorSetup SetupOf(const WorkerConfig& config);
// Returns the configuration of an executor, which has no coordinator and no
// secrets.
WorkerConfig ConfigOf(const v1::ExecutorSetup& setup);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISED_WORKER_H_
