#include "client_lib/cluster/local_clusters.h"

#include <algorithm>

#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/shared_memory_connector.h"
#include "common/base/status_macros.h"
#include "common/io/secret_file.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Time that the processes on this machine may take to start.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
// Time that the local coordinator may take to open the session, and to grant a
// lease. Both take milliseconds on an idle machine.
constexpr absl::Duration kLocalTimeout = absl::Seconds(30);

}  // namespace

absl::StatusOr<LocalCluster> StartLocalCluster(const std::string& session_id,
                                               int worker_threads,
                                               absl::Duration timeout) {
  ClusterOptions options;
  options.workers = 1;
  options.start_timeout = timeout;
  options.worker_threads = worker_threads;
  options.worker_prefix = kLocalWorkerPrefix;
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<ClusterProcesses> processes,
                         ClusterProcesses::Start(options));
  DJINN_ASSIGN_OR_RETURN(const std::string token,
                         ReadToken(processes->token_file()));
  LocalCluster cluster;
  DJINN_ASSIGN_OR_RETURN(
      cluster.link, MakeGrpcCoordinatorLink(processes->coordinator_address(),
                                            token, {.session_id = session_id}));
  cluster.connector = MakeSharedMemoryConnector(MakeGrpcWorkerConnector());
  cluster.processes = std::move(processes);
  return cluster;
}

absl::StatusOr<std::shared_ptr<LocalClusters::Local>> LocalClusters::Start(
    const std::string& session_id, int threads, const Deadline& deadline) {
  {
    MutexLock lock(&mu_);
    while (starting_ && !cancelled_ && !deadline.passed()) {
      WaitUntil(&changed_, &mu_, deadline);
    }
    if (cancelled_) return absl::CancelledError("the session closes");
    const auto found = locals_.find(threads);
    if (found != locals_.end()) return found->second;
    if (starting_) {
      return absl::DeadlineExceededError(
          "the local cluster did not start in time; another device is "
          "starting it");
    }
    starting_ = true;
  }
  absl::StatusOr<std::shared_ptr<Local>> local =
      Open(session_id, threads, deadline);
  MutexLock lock(&mu_);
  starting_ = false;
  changed_.SignalAll();
  if (!local.ok()) return local;
  if (cancelled_) return absl::CancelledError("the session closes");
  locals_[threads] = *local;
  return local;
}

absl::StatusOr<std::shared_ptr<LocalClusters::Local>> LocalClusters::Open(
    const std::string& session_id, int threads, const Deadline& deadline) {
  log::Warning("starts a coordinator and a worker on this machine",
               {{"threads", threads}});
  auto local = std::make_shared<Local>();
  DJINN_ASSIGN_OR_RETURN(
      local->cluster,
      start_(session_id, threads, std::min(kStartTimeout, deadline.left())));
  DJINN_ASSIGN_OR_RETURN(
      local->opened,
      local->cluster.link->Open(
          program_, std::min(kLocalTimeout, deadline.left()), events_));
  return local;
}

absl::StatusOr<v1::LeaseGranted> LocalClusters::RequestLease(
    Local& local, const v1::LeaseRequest& request, const Deadline& deadline) {
  return local.cluster.link->RequestLease(
      request, std::min(kLocalTimeout, deadline.left()));
}

void LocalClusters::Drop(const std::shared_ptr<Local>& local) {
  MutexLock lock(&mu_);
  for (auto each = locals_.begin(); each != locals_.end(); ++each) {
    if (each->second != local) continue;
    locals_.erase(each);
    return;
  }
}

void LocalClusters::ReturnLease(const std::string& lease_id) {
  // A link ignores leases that it did not grant.
  for (const auto& [threads, local] : All()) {
    local->cluster.link->ReturnLease(lease_id, /*unreachable=*/false);
  }
}

void LocalClusters::Cancel() {
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    changed_.SignalAll();
  }
  for (const auto& [threads, local] : All()) {
    local->cluster.link->CancelRequests();
  }
}

absl::Status LocalClusters::Close(const Deadline& deadline) {
  Locals locals;
  {
    MutexLock lock(&mu_);
    locals.swap(locals_);
  }
  absl::Status status;
  for (const auto& [threads, local] : locals) {
    status.Update(local->cluster.link->Close(deadline.left()));
  }
  return status;
}

}  // namespace djinn
