// Starts clusters on the program's own machine, on which a session goes on when
// the cluster has no worker for it (local_fallback.h).
#ifndef CLIENT_LIB_CLUSTER_LOCAL_CLUSTERS_H_
#define CLIENT_LIB_CLUSTER_LOCAL_CLUSTERS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/model/wait.h"
#include "common/base/mutex.h"

namespace djinn {

// The beginning of the ids of local workers.
inline constexpr char kLocalWorkerPrefix[] = "local-";

// A cluster on this machine. Its processes end with it.
struct LocalCluster {
  // Destroyed before the processes.
  std::shared_ptr<void> processes;
  // Not yet opened.
  std::unique_ptr<CoordinatorLink> link;
  std::shared_ptr<WorkerConnector> connector;
};

// Starts a coordinator and a CPU worker (LocalClusters::StartFunction).
absl::StatusOr<LocalCluster> StartLocalCluster(const std::string& session_id,
                                               int worker_threads,
                                               absl::Duration timeout);

// The local clusters of one session: one for each number of threads that its
// devices need. Thread-safe.
class LocalClusters {
 public:
  // A cluster with the session open there.
  struct Local {
    LocalCluster cluster;
    CoordinatorLink::Opened opened;

    ~Local() {
      if (cluster.link != nullptr) {
        (void)cluster.link->Close(absl::ZeroDuration());
      }
    }
  };
  // Starts a cluster within `timeout`. Its link attaches under `session_id`, or
  // opens a session if that is empty.
  using StartFunction = std::function<absl::StatusOr<LocalCluster>(
      const std::string& session_id, int worker_threads,
      absl::Duration timeout)>;

  explicit LocalClusters(StartFunction start) : start_(std::move(start)) {}

  // Sets what the clusters' coordinators get; called before everything else.
  void Begin(std::string program, CoordinatorEvents* events) {
    program_ = std::move(program);
    events_ = events;
  }
  // Returns a running cluster whose worker has this number of threads. Starts
  // it if there is none.
  absl::StatusOr<std::shared_ptr<Local>> Start(const std::string& session_id,
                                               int threads,
                                               const Deadline& deadline);
  // Requests a lease within the deadline.
  static absl::StatusOr<v1::LeaseGranted> RequestLease(
      Local& local, const v1::LeaseRequest& request, const Deadline& deadline);
  // Forgets a cluster whose worker is gone.
  void Drop(const std::shared_ptr<Local>& local);
  // Returns the lease to the coordinator that granted it.
  void ReturnLease(const std::string& lease_id);
  // Fails lease requests, and starts nothing more.
  void Cancel();
  // Closes the sessions, and ends the clusters.
  absl::Status Close(const Deadline& deadline);

 private:
  using Locals = std::map<int, std::shared_ptr<Local>>;

  absl::StatusOr<std::shared_ptr<Local>> Open(const std::string& session_id,
                                              int threads,
                                              const Deadline& deadline);
  Locals All() const {
    MutexLock lock(&mu_);
    return locals_;
  }

  const StartFunction start_;
  std::string program_;
  CoordinatorEvents* events_ = nullptr;

  mutable Mutex mu_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool starting_ ABSL_GUARDED_BY(mu_) = false;
  // By the number of their workers' threads.
  Locals locals_ ABSL_GUARDED_BY(mu_);
};

// Local leases, and how to connect to their worker. Thread-safe.
class LocalLeases {
 public:
  void Add(const std::string& lease_id,
           std::shared_ptr<WorkerConnector> connector) {
    MutexLock lock(&mu_);
    leases_[lease_id] = std::move(connector);
  }
  void Remove(const std::string& lease_id) {
    MutexLock lock(&mu_);
    leases_.erase(lease_id);
  }
  // Returns null for a lease of the cluster.
  std::shared_ptr<WorkerConnector> Find(const std::string& lease_id) const {
    MutexLock lock(&mu_);
    const auto found = leases_.find(lease_id);
    return found == leases_.end() ? nullptr : found->second;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<WorkerConnector>> leases_
      ABSL_GUARDED_BY(mu_);
};

class FallbackConnector : public WorkerConnector {
 public:
  FallbackConnector(std::unique_ptr<WorkerConnector> cluster,
                    std::shared_ptr<LocalLeases> local)
      : cluster_(std::move(cluster)), local_(std::move(local)) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) override {
    const auto local = local_->Find(lease.lease_id());
    return local != nullptr ? local->Connect(lease, session_id)
                            : cluster_->Connect(lease, session_id);
  }

 private:
  const std::unique_ptr<WorkerConnector> cluster_;
  const std::shared_ptr<LocalLeases> local_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_LOCAL_CLUSTERS_H_
