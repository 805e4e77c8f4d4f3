#include "djinn/embedded_cluster.h"

#include <utility>

#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/status_macros.h"

namespace djinn {

class EmbeddedCluster::Impl {
 public:
  explicit Impl(std::unique_ptr<ClusterProcesses> processes)
      : processes(std::move(processes)) {}

  const std::unique_ptr<ClusterProcesses> processes;
};

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(
    const EmbeddedClusterOptions& options) {
  // The library's threads exist in the parent only.
  if (IsForkedChild()) return AfterForkError();
  ClusterOptions cluster;
  cluster.workers = options.workers;
  cluster.worker_memory_bytes = options.worker_memory_bytes;
  cluster.worker_threads = options.worker_threads;
  cluster.device_kind = options.worker_device;
  cluster.operator_libraries = options.operator_libraries;
  cluster.optional_operator_libraries = options.optional_operator_libraries;
  cluster.start_timeout = options.start_timeout;
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<ClusterProcesses> processes,
                         ClusterProcesses::Start(cluster));
  return std::unique_ptr<EmbeddedCluster>(
      new EmbeddedCluster(std::make_unique<Impl>(std::move(processes))));
}

EmbeddedCluster::EmbeddedCluster(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

EmbeddedCluster::~EmbeddedCluster() = default;

ConnectOptions EmbeddedCluster::connect_options() const {
  ConnectOptions options;
  options.coordinator = impl_->processes->coordinator_address();
  options.token_file = impl_->processes->token_file();
  // The environment may describe another cluster.
  options.tls = TlsOptions();
  return options;
}

std::string EmbeddedCluster::admin_token_file() const {
  return impl_->processes->admin_token_file();
}

pid_t EmbeddedCluster::coordinator_pid() const {
  return impl_->processes->coordinator_pid();
}

std::vector<pid_t> EmbeddedCluster::worker_pids() const {
  return impl_->processes->worker_pids();
}

}  // namespace djinn
