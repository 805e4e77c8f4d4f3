#include "client_lib/cluster/local_fallback.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/shared_memory_connector.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/io/secret_file.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Times that a session reports a process of a worker as not reached before it
// takes no further lease of it for kUnreachedLife.
constexpr int kMostUnreached = 2;
constexpr absl::Duration kUnreachedLife = absl::Minutes(1);
// Time that the processes on this machine may take to start.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
// Time that the local coordinator may take to open the session, and to grant a
// lease. Both take milliseconds on an idle machine.
constexpr absl::Duration kLocalTimeout = absl::Seconds(30);
// Time that a question whether the cluster has a worker again may wait.
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

// Returns whether the refusal means that there is no worker now.
bool MeansNoWorker(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

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

class FallbackLink : public CoordinatorLink, private CoordinatorEvents {
 public:
  FallbackLink(std::unique_ptr<CoordinatorLink> cluster,
               FallbackOptions options, std::shared_ptr<LocalLeases> leases)
      : cluster_(std::move(cluster)),
        options_(std::move(options)),
        leases_(std::move(leases)) {}
  ~FallbackLink() override { (void)Close(absl::ZeroDuration()); }

  absl::StatusOr<Opened> Open(const std::string& program,
                              absl::Duration timeout,
                              CoordinatorEvents* events) override {
    program_ = program;
    events_ = events;
    const Deadline deadline(timeout);
    absl::StatusOr<Opened> opened = cluster_->Open(
        program, std::min(options_.patience, timeout / 2), events);
    if (opened.ok()) {
      session_id_ = opened->session_id;
      return opened;
    }
    if (!absl::IsUnavailable(opened.status()) &&
        !absl::IsDeadlineExceeded(opened.status())) {
      return opened;
    }
    log::Warning(
        "the cluster is not reached; the session opens on this machine, and "
        "stays there",
        {{"error", opened.status()}});
    in_cluster_ = false;
    const absl::StatusOr<std::shared_ptr<Local>> local = StartLocal(deadline);
    if (!local.ok()) return Both(opened.status(), local.status());
    session_id_ = (*local)->opened.session_id;
    return (*local)->opened;
  }

  absl::StatusOr<v1::LeaseGranted> RequestLease(
      v1::LeaseRequest request, absl::Duration timeout) override {
    const Deadline deadline(timeout);
    const uint32_t number = request.virtual_device();
    const bool was_here = IsHere(number);
    if (request.member() > 0) {
      if (was_here) {
        return MakeError(absl::StatusCode::kResourceExhausted, "NO_CAPACITY",
                         "a local fallback has one worker");
      }
      auto granted = cluster_->RequestLease(std::move(request), timeout);
      if (granted.ok()) NoteMember(number, granted->lease().lease_id());
      return granted;
    }
    // The workers of one device must reach each other.
    if (HasSeveral(number)) {
      return cluster_->RequestLease(std::move(request), timeout);
    }
    if (auto offered = TakeOffer(number, timeout)) return *std::move(offered);
    absl::Status why =
        MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_UNREACHABLE",
                  "the cluster's coordinator was not reached");
    if (in_cluster_) {
      absl::StatusOr<v1::LeaseGranted> granted =
          AskCluster(request, std::min(options_.patience, timeout / 2));
      // The device may have left for an offer that has gone meanwhile.
      if (granted.ok() && was_here) NoteWentBack(number);
      if (granted.ok() || !MeansNoWorker(granted.status())) return granted;
      why = granted.status();
    }
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the session closes");
    }
    return AskLocal(request, why, deadline);
  }

  void ReturnLease(const std::string& lease_id, bool unreachable) override {
    if (leases_->Find(lease_id) != nullptr) return ReturnLocal(lease_id);
    {
      MutexLock lock(&mu_);
      members_.erase(lease_id);
      const auto granted = granted_.extract(lease_id);
      if (!granted.empty() && unreachable) {
        Unreached& worker = unreached_[granted.mapped()];
        const absl::Duration now = Clock::Real()->Monotonic();
        if (now - worker.last >= kUnreachedLife) worker.count = 0;
        worker = {worker.count + 1, now};
      }
    }
    cluster_->ReturnLease(lease_id, unreachable);
  }

  void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                 std::optional<v1::StageRequest> stages) override {
    if (!in_cluster_) return;  // no coordinator learns from it
    cluster_->SendGraph(std::move(graph), std::move(notes), std::move(stages));
  }

  void ReportMigration(uint32_t virtual_device,
                       v1::MigrationOutcome outcome) override {
    if (in_cluster_)
      cluster_->ReportMigration(virtual_device, std::move(outcome));
  }

  void Report(v1::SessionRequest report) override {
    if (in_cluster_) cluster_->Report(std::move(report));
  }

  void CancelRequests() override {
    std::shared_ptr<Local> local;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      changed_.SignalAll();
      local = local_;
    }
    cluster_->CancelRequests();
    if (local != nullptr) local->cluster.link->CancelRequests();
  }

  absl::Status Close(absl::Duration timeout) override {
    {
      MutexLock lock(&mu_);
      if (std::exchange(closed_, true)) return absl::OkStatus();
    }
    CancelRequests();
    std::shared_ptr<Local> local;
    std::thread returner;
    {
      MutexLock lock(&mu_);
      local = std::exchange(local_, nullptr);
      returner = std::move(returner_);
    }
    if (returner.joinable()) returner.join();
    absl::Status status;
    if (local != nullptr) status = local->cluster.link->Close(timeout);
    return in_cluster_ ? cluster_->Close(timeout) : status;
  }

 private:
  // The local cluster, with the session open there.
  struct Local {
    LocalCluster cluster;
    Opened opened;

    ~Local() {
      if (cluster.link != nullptr) {
        (void)cluster.link->Close(absl::ZeroDuration());
      }
    }
  };
  // A virtual device that has a local lease.
  struct Device {
    v1::LeaseRequest request;
    std::string lease_id;
    // A lease of the cluster that the device may take.
    std::optional<v1::LeaseGranted> offer;
    absl::Duration offered;
    // The returner asks the cluster for it.
    bool asking = false;
    // It did not take an offer, or could not go on at the offered worker. It
    // gets no further offers.
    bool stays = false;
  };
  using Process = std::pair<std::string, uint64_t>;  // worker, incarnation
  struct Unreached {
    int count = 0;
    absl::Duration last = -absl::InfiniteDuration();
  };

  // --- Events of the local coordinator ---

  void OnLeaseEnded(const std::string& lease_id,
                    const std::string& reason) override {
    events_->OnLeaseEnded(lease_id, reason);
  }
  // A single worker has nowhere to migrate to, and its graphs are not cut.
  void OnMigrationRequested(const v1::MigrationRequest&) override {}
  void OnStages(const v1::StageAnswer&) override {}
  // Operators ask the cluster's coordinator.
  void OnLineageAsked(const v1::LineageQuestion&) override {}
  void OnAttachedAgain() override {}

  bool IsHere(uint32_t virtual_device) {
    MutexLock lock(&mu_);
    return !in_cluster_ || devices_.contains(virtual_device);
  }

  void NoteMember(uint32_t virtual_device, const std::string& lease_id) {
    MutexLock lock(&mu_);
    members_[lease_id] = virtual_device;
  }
  bool HasSeveral(uint32_t virtual_device) {
    MutexLock lock(&mu_);
    return std::any_of(members_.begin(), members_.end(), [&](const auto& each) {
      return each.second == virtual_device;
    });
  }

  void NoteWentBack(uint32_t virtual_device) {
    MutexLock lock(&mu_);
    went_back_[virtual_device] = Clock::Real()->Monotonic();
  }

  // Returns the cluster's error, and adds why there is no local worker either.
  static absl::Status Both(const absl::Status& cluster,
                           const absl::Status& local) {
    absl::Status both(
        cluster.code(),
        absl::StrCat(cluster.message(),
                     "; and no local fallback, because: ", local.message()));
    cluster.ForEachPayload(
        [&](absl::string_view url, const absl::Cord& payload) {
          both.SetPayload(url, payload);
        });
    return both;
  }

  // Returns whether the session avoids the worker of the lease.
  bool IsAvoided(const v1::Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto found =
        unreached_.find({lease.worker_id(), lease.worker_incarnation()});
    return found != unreached_.end() && found->second.count >= kMostUnreached &&
           Clock::Real()->Monotonic() - found->second.last < kUnreachedLife;
  }

  absl::StatusOr<v1::LeaseGranted> AskCluster(const v1::LeaseRequest& request,
                                              absl::Duration timeout) {
    absl::StatusOr<v1::LeaseGranted> granted =
        cluster_->RequestLease(request, timeout);
    if (!granted.ok()) return granted;
    const v1::Lease& lease = granted->lease();
    {
      MutexLock lock(&mu_);
      if (!IsAvoided(lease)) {
        granted_[lease.lease_id()] = {lease.worker_id(),
                                      lease.worker_incarnation()};
        return granted;
      }
    }
    // The coordinator was told when the session did not reach the worker.
    cluster_->ReturnLease(lease.lease_id(), /*unreachable=*/false);
    return MakeError(
        absl::StatusCode::kUnavailable, "WORKER_UNREACHABLE",
        absl::StrCat("worker ", lease.worker_id(), " at ",
                     lease.worker_address(), " was not reached ",
                     kMostUnreached, " times, and the cluster has no other"),
        {{"worker", lease.worker_id()}});
  }

  // Returns a running local cluster. Starts it if there is none.
  absl::StatusOr<std::shared_ptr<Local>> StartLocal(const Deadline& deadline) {
    {
      MutexLock lock(&mu_);
      while (starting_ && !cancelled_ && !deadline.passed()) {
        WaitUntil(&changed_, &mu_, deadline);
      }
      if (cancelled_) return absl::CancelledError("the session closes");
      if (local_ != nullptr) return local_;
      if (starting_) {
        return absl::DeadlineExceededError(
            "the local cluster did not start in time; another device is "
            "starting it");
      }
      starting_ = true;
    }
    absl::StatusOr<std::shared_ptr<Local>> local = OpenLocal(deadline);
    MutexLock lock(&mu_);
    starting_ = false;
    changed_.SignalAll();
    if (!local.ok()) return local;
    if (cancelled_) return absl::CancelledError("the session closes");
    local_ = *local;
    return local;
  }

  absl::StatusOr<std::shared_ptr<Local>> OpenLocal(const Deadline& deadline) {
    log::Warning("starts a coordinator and a worker on this machine");
    auto local = std::make_shared<Local>();
    DJINN_ASSIGN_OR_RETURN(
        local->cluster,
        options_.start(session_id_, std::min(kStartTimeout, deadline.left())));
    DJINN_ASSIGN_OR_RETURN(
        local->opened,
        local->cluster.link->Open(
            program_, std::min(kLocalTimeout, deadline.left()), this));
    return local;
  }

  // Forgets the local cluster, whose worker is gone.
  void DropLocal(const std::shared_ptr<Local>& local) {
    MutexLock lock(&mu_);
    if (local_ == local) local_ = nullptr;
  }

  absl::StatusOr<v1::LeaseGranted> AskLocal(const v1::LeaseRequest& request,
                                            const absl::Status& why,
                                            const Deadline& deadline) {
    absl::StatusOr<v1::LeaseGranted> granted;
    // A local worker that died needs a new process.
    for (int tries = 0; tries < 2; ++tries) {
      const absl::StatusOr<std::shared_ptr<Local>> local = StartLocal(deadline);
      if (!local.ok()) return Both(why, local.status());
      granted = (*local)->cluster.link->RequestLease(
          request, std::min(kLocalTimeout, deadline.left()));
      if (granted.ok()) {
        leases_->Add(granted->lease().lease_id(), (*local)->cluster.connector);
        break;
      }
      if (!absl::IsUnavailable(granted.status()) &&
          !absl::IsDeadlineExceeded(granted.status())) {
        break;
      }
      DropLocal(*local);
    }
    if (!granted.ok()) return Both(why, granted.status());
    granted->set_placement_reason(
        absl::StrCat(kLocalReason, "the cluster gave no worker (",
                     ErrorReason(why), ": ", why.message(), ")"));
    const std::string& worker = granted->lease().worker_id();
    if (HasSeveral(request.virtual_device())) {
      // It got a second worker of the cluster meanwhile.
      ReturnLocal(granted->lease().lease_id());
      return why;
    }
    log::Warning(
        "the cluster gives no worker; a worker on this machine takes the "
        "device",
        {{"device", request.virtual_device()},
         {"worker", worker},
         {"cause", why}});
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the session closes");
      Device& device = devices_[request.virtual_device()];
      device.request = request;
      const auto went = went_back_.find(request.virtual_device());
      device.stays = went != went_back_.end() &&
                     Clock::Real()->Monotonic() - went->second < kUnreachedLife;
      // The device may hold other contents when it goes back.
      device.request.clear_contents();
      device.lease_id = granted->lease().lease_id();
      if (in_cluster_ && !returner_.joinable()) {
        returner_ = std::thread([this] { KeepAsking(); });
      }
    }
    if (in_cluster_) {
      v1::SessionRequest report;
      v1::RecoveryReport* const recovered = report.mutable_recovered();
      recovered->set_virtual_device(request.virtual_device());
      recovered->set_kind(v1::RecoveryReport::LOCAL_FALLBACK);
      recovered->set_to_worker_id(worker);
      recovered->mutable_cause()->set_code(static_cast<int32_t>(why.code()));
      recovered->mutable_cause()->set_reason(ErrorReason(why));
      cluster_->Report(std::move(report));
    }
    return granted;
  }

  void ReturnLocal(const std::string& lease_id) {
    leases_->Remove(lease_id);
    std::shared_ptr<Local> local;
    std::optional<v1::LeaseGranted> offer;
    {
      MutexLock lock(&mu_);
      local = local_;
      for (auto device = devices_.begin(); device != devices_.end(); ++device) {
        if (device->second.lease_id != lease_id) continue;
        offer = std::move(device->second.offer);
        devices_.erase(device);
        break;
      }
    }
    if (offer.has_value()) {
      ReturnLease(offer->lease().lease_id(), /*unreachable=*/false);
    }
    if (local != nullptr) {
      local->cluster.link->ReturnLease(lease_id, /*unreachable=*/false);
    }
  }

  // Returns the lease of the cluster that the device was offered, and forgets
  // its local lease. Waits while the cluster is being asked for one.
  std::optional<v1::LeaseGranted> TakeOffer(uint32_t virtual_device,
                                            absl::Duration timeout) {
    std::optional<v1::LeaseGranted> offer;
    std::string local_lease;
    {
      const Deadline deadline(timeout);
      MutexLock lock(&mu_);
      for (;;) {
        const auto found = devices_.find(virtual_device);
        if (found == devices_.end()) return std::nullopt;
        if (found->second.asking && !cancelled_ && !deadline.passed()) {
          WaitUntil(&changed_, &mu_, deadline);
          continue;
        }
        offer = std::move(found->second.offer);
        local_lease = found->second.lease_id;
        devices_.erase(found);
        break;
      }
    }
    // The device asks because it has lost the local worker, or leaves it.
    ReturnLocal(local_lease);
    if (offer.has_value()) {
      NoteWentBack(virtual_device);
      log::Info(
          "the cluster has a worker again",
          {{"device", virtual_device}, {"worker", offer->lease().worker_id()}});
    }
    return offer;
  }

  // The returner: asks the cluster for a worker for each device that is here.
  void KeepAsking() {
    for (;;) {
      std::vector<uint32_t> here;
      {
        const Deadline pause(options_.return_interval);
        MutexLock lock(&mu_);
        while (!cancelled_ && !pause.passed()) {
          WaitUntil(&changed_, &mu_, pause);
        }
        if (cancelled_) return;
        for (const auto& [number, device] : devices_) {
          if (!device.stays) here.push_back(number);
        }
      }
      for (const uint32_t number : here) AskFor(number);
    }
  }

  void AskFor(uint32_t number) {
    v1::LeaseRequest request;
    std::string stale;
    {
      MutexLock lock(&mu_);
      const auto found = devices_.find(number);
      if (found == devices_.end() || cancelled_) return;
      Device& device = found->second;
      if (device.offer.has_value()) {
        const absl::Duration age = Clock::Real()->Monotonic() - device.offered;
        if (age < options_.offer_life) return;
        // The device stays here. Another one may use the worker.
        stale = device.offer->lease().lease_id();
        device.offer.reset();
        device.stays = true;
      } else {
        device.asking = true;
        request = device.request;
      }
    }
    if (!stale.empty()) return ReturnLease(stale, /*unreachable=*/false);
    absl::StatusOr<v1::LeaseGranted> granted = AskCluster(request, kAskTimeout);
    std::string local_lease;
    std::string unwanted;
    {
      MutexLock lock(&mu_);
      const auto found = devices_.find(number);
      if (found != devices_.end()) found->second.asking = false;
      changed_.SignalAll();
      if (!granted.ok()) return;
      if (found == devices_.end()) {
        unwanted = granted->lease().lease_id();
      } else {
        found->second.offer = *std::move(granted);
        found->second.offered = Clock::Real()->Monotonic();
        local_lease = found->second.lease_id;
      }
    }
    if (!unwanted.empty()) return ReturnLease(unwanted, /*unreachable=*/false);
    events_->OnLeaseEnded(local_lease, kFallbackEnded);
  }

  const std::unique_ptr<CoordinatorLink> cluster_;
  const FallbackOptions options_;
  const std::shared_ptr<LocalLeases> leases_;
  // Set by Open().
  std::string program_;
  std::string session_id_;
  CoordinatorEvents* events_ = nullptr;
  // Whether the cluster's coordinator opened the session.
  bool in_cluster_ = true;

  Mutex mu_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool starting_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Local> local_ ABSL_GUARDED_BY(mu_);
  // The virtual devices of leases for further workers, which the cluster has
  // granted and the client has not returned.
  std::map<std::string, uint32_t> members_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, Device> devices_ ABSL_GUARDED_BY(mu_);
  // The time when a device that was here last got a lease of the cluster.
  std::map<uint32_t, absl::Duration> went_back_ ABSL_GUARDED_BY(mu_);
  // The worker processes of the cluster's leases, and those not reached.
  std::map<std::string, Process> granted_ ABSL_GUARDED_BY(mu_);
  std::map<Process, Unreached> unreached_ ABSL_GUARDED_BY(mu_);
  std::thread returner_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

FallbackLinks WithFallback(std::unique_ptr<CoordinatorLink> link,
                           std::unique_ptr<WorkerConnector> connector,
                           FallbackOptions options) {
  auto leases = std::make_shared<LocalLeases>();
  return {std::make_unique<FallbackLink>(std::move(link), std::move(options),
                                         leases),
          std::make_unique<FallbackConnector>(std::move(connector), leases)};
}

std::function<absl::StatusOr<LocalCluster>(const std::string&, absl::Duration)>
LocalClusterStarter(int worker_threads) {
  return [worker_threads](
             const std::string& session_id,
             absl::Duration timeout) -> absl::StatusOr<LocalCluster> {
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
        cluster.link,
        MakeGrpcCoordinatorLink(processes->coordinator_address(), token,
                                {.session_id = session_id}));
    cluster.connector = MakeSharedMemoryConnector(MakeGrpcWorkerConnector());
    cluster.processes = std::move(processes);
    return cluster;
  };
}

}  // namespace djinn
