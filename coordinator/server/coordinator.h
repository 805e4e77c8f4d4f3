// Runs a coordinator: the cluster's state, its services on one address, and the
// thread that lets time pass.
#ifndef COORDINATOR_SERVER_COORDINATOR_H_
#define COORDINATOR_SERVER_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/net/call_metrics.h"
#include "common/net/monitoring/monitoring_port.h"
#include "common/net/monitoring/readiness.h"
#include "common/net/server.h"
#include "common/net/unproven_connections.h"
#include "common/trace/span_exporter.h"
#include "coordinator/admin/config_reloader.h"
#include "coordinator/admin/quota_setter.h"
#include "coordinator/config/config.h"
#include "coordinator/config/operators.h"
#include "coordinator/config/tenants.h"
#include "coordinator/graphs/graph_intake.h"
#include "coordinator/graphs/graph_store.h"
#include "coordinator/persistence/state_keeper.h"
#include "coordinator/persistence/store.h"
#include "coordinator/scaler/grpc_scaler_service.h"
#include "coordinator/server/running_clock.h"
#include "coordinator/tables/cluster_state.h"

namespace djinn::coordinator {

// The right of an elected coordinator to serve.
struct Leadership {
  // The store that the candidates share; it outlives the coordinator.
  Store* store = nullptr;
  // As Election::owner() and Election::View::term.
  std::string owner;
  uint64_t term = 0;
  absl::Duration lease;
};

class Coordinator {
 public:
  // Starts to serve; serves until Stop(). `clock` and `random` must outlive the
  // coordinator. Returns the errors of Server::Start(),
  // MonitoringServer::Start() and the store. With `tick` false, time does not
  // pass until the caller ticks the cluster, for tests with a fake clock.
  // `read_config` reads the configuration again, for ReloadConfig(). With a
  // `leadership`, the coordinator uses its store instead of the configured one,
  // and every message carries its term; returns Aborted (LEADERSHIP_LOST) when
  // that term has ended.
  using ReadConfigFunction = std::function<absl::StatusOr<Config>()>;
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      Config config, Clock* clock, RandomSource* random,
      ReadConfigFunction read_config, bool tick = true,
      const Leadership* leadership = nullptr);

  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Returns the address at which clients and workers reach the coordinator.
  const std::string& address() const { return server_->address(); }
  // Returns the address of the monitoring port; empty when none is configured.
  std::string monitoring_address() const {
    return monitoring_ == nullptr ? "" : monitoring_->address();
  }
  ClusterState* cluster() { return cluster_.get(); }
  ConfigReloader* reloader() { return &reloader_; }

  // Returns whether another process has become the writer of the store. This
  // one must then be stopped.
  bool lost() const { return keeper_->lost(); }

  Readiness* readiness() { return readiness_.get(); }

  // Makes the coordinator not ready. Ends every stream with a reason, then the
  // server. Sessions and leases continue on the workers, for another
  // coordinator to adopt. Saves the state a last time.
  void Stop();

 private:
  Coordinator(Config config, Clock* clock, RandomSource* random,
              ReadConfigFunction read_config, bool tick);
  absl::Status OpenState(Clock* clock, RandomSource* random,
                         const Leadership* leadership);
  absl::Status OpenKeeper(Clock* clock, RandomSource* random,
                          const Leadership* leadership);
  void TickUntilStopped();
  absl::Status StartMonitoring();
  absl::Status StartScaler();

  const Config config_;
  // The interval of Tick().
  const absl::Duration period_;
  RunningClock clock_;
  Tenants tenants_;
  Credentials credentials_;
  const std::unique_ptr<ClusterState> cluster_;
  ConfigReloader reloader_;
  // Null when the store is shared.
  std::unique_ptr<Store> store_;
  std::unique_ptr<StateKeeper> keeper_;
  QuotaSetter quotas_;
  GraphStore graphs_;
  GraphIntake intake_;
  // Null when traces are not configured.
  std::unique_ptr<SpanExporter> spans_;
  CallMetrics call_metrics_;
  UnprovenConnections unproven_;
  // Made by Start().
  std::unique_ptr<grpc::Service> sessions_;
  const std::unique_ptr<grpc::Service> workers_;
  const std::unique_ptr<grpc::Service> departures_;
  const std::unique_ptr<grpc::Service> admin_;
  // Declared after the services that it serves, so that it ends before them.
  std::unique_ptr<Server> server_;
  GrpcScalerService scaler_;
  // Null when none is configured.
  std::unique_ptr<Server> scaler_server_;

  Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread ticker_;
  // Declared last, because they read all the others. The port is null when none
  // is configured.
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<MonitoringPort> monitoring_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SERVER_COORDINATOR_H_
