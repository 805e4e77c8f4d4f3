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
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/cluster/local_clusters.h"
#include "client_lib/session/model/remedies.h"
#include "client_lib/session/model/wait.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Times that a session reports a process of a worker as not reached before it
// takes no further lease of it for kUnreachedLife.
constexpr int kMostUnreached = 2;
constexpr absl::Duration kUnreachedLife = absl::Minutes(1);
// Time that a question whether the cluster has a worker again may wait.
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

// Time after which a device that recovers asks again for a worker that is large
// enough.
constexpr absl::Duration kAskAgain = absl::Milliseconds(500);

// Returns whether all workers that are there now are too small for what the
// device held when it lost its worker.
bool IsTooLarge(const v1::LeaseRequest& request, const absl::Status& status) {
  return request.recovers() && ErrorReason(status) == "TOO_LARGE";
}

// Returns whether the refusal means that there is no worker now.
bool MeansNoWorker(const v1::LeaseRequest& request,
                   const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status) || IsTooLarge(request, status);
}

// Returns the number of threads of the worker with these numerics
// (gpu_worker/device/cpu/numerics.h), or `otherwise` if they do not state it.
int ThreadsOf(absl::string_view numerics, int otherwise) {
  int threads = 0;
  const size_t dash = numerics.rfind('-');
  return absl::StartsWith(numerics, "cpu-") &&
                 absl::SimpleAtoi(numerics.substr(dash + 1), &threads) &&
                 threads > 0
             ? threads
             : otherwise;
}

class FallbackLink : public CoordinatorLink, private CoordinatorEvents {
 public:
  FallbackLink(std::unique_ptr<CoordinatorLink> cluster,
               FallbackOptions options, std::shared_ptr<LocalLeases> leases)
      : options_(std::move(options)),
        leases_(std::move(leases)),
        clusters_(options_.start),
        cluster_(std::move(cluster)) {}
  ~FallbackLink() override { (void)Close(absl::ZeroDuration()); }

  absl::StatusOr<Opened> Open(const std::string& program,
                              absl::Duration timeout,
                              CoordinatorEvents* events) override {
    program_ = program;
    events_ = events;
    clusters_.Begin(program, this);
    const Deadline deadline(timeout);
    absl::StatusOr<Opened> opened = Cluster()->Open(
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
        "the cluster is not reached; the session opens on this machine",
        {{"error", opened.status()}});
    {
      MutexLock lock(&mu_);
      cluster_ = nullptr;
    }
    const absl::StatusOr<std::shared_ptr<LocalClusters::Local>> local =
        clusters_.Start("", options_.worker_threads, deadline);
    if (!local.ok()) return Both(opened.status(), local.status());
    session_id_ = (*local)->opened.session_id;
    MutexLock lock(&mu_);
    StartReturner();
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
      auto granted = Cluster()->RequestLease(std::move(request), timeout);
      if (granted.ok()) NoteMember(number, granted->lease().lease_id());
      return granted;
    }
    // The workers of one device must reach each other.
    if (HasSeveral(number)) {
      return Cluster()->RequestLease(std::move(request), timeout);
    }
    if (auto offered = TakeOffer(number, timeout)) return *std::move(offered);
    const Deadline patience(std::min(options_.patience, timeout / 2));
    absl::StatusOr<v1::LeaseGranted> granted =
        AskCluster(request, patience.left());
    // The lost worker may come back.
    while (IsTooLarge(request, granted.status()) &&
           patience.left() > absl::ZeroDuration()) {
      {
        MutexLock lock(&mu_);
        if (cancelled_) break;
        changed_.WaitWithTimeout(&mu_, std::min(kAskAgain, patience.left()));
      }
      granted = AskCluster(request, patience.left());
    }
    // The device may have left for an offer that has gone meanwhile.
    if (granted.ok() && was_here) NoteWentBack(number);
    if (granted.ok() || !MeansNoWorker(request, granted.status()))
      return granted;
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the session closes");
    }
    return AskLocal(request, granted.status(), deadline);
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
    if (const auto cluster = Cluster()) {
      cluster->ReturnLease(lease_id, unreachable);
    }
  }

  void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                 std::optional<v1::StageRequest> stages) override {
    const auto cluster = Cluster();
    if (cluster == nullptr) return;  // no coordinator learns from it
    cluster->SendGraph(std::move(graph), std::move(notes), std::move(stages));
  }

  void ReportMigration(uint32_t virtual_device,
                       v1::MigrationOutcome outcome) override {
    if (const auto cluster = Cluster()) {
      cluster->ReportMigration(virtual_device, std::move(outcome));
    }
  }

  void Report(v1::SessionRequest report) override {
    if (const auto cluster = Cluster()) cluster->Report(std::move(report));
  }

  void CancelRequests() override {
    std::shared_ptr<CoordinatorLink> cluster;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      changed_.SignalAll();
      cluster = attaching_ != nullptr ? attaching_ : cluster_;
    }
    if (cluster != nullptr) cluster->CancelRequests();
    clusters_.Cancel();
  }

  absl::Status Close(absl::Duration timeout) override {
    {
      MutexLock lock(&mu_);
      if (std::exchange(closed_, true)) return absl::OkStatus();
    }
    CancelRequests();
    const Deadline deadline(timeout);
    std::thread returner;
    {
      MutexLock lock(&mu_);
      returner = std::move(returner_);
    }
    if (returner.joinable()) returner.join();
    const absl::Status status = clusters_.Close(deadline);
    const auto cluster = Cluster();
    return cluster != nullptr ? cluster->Close(deadline.left()) : status;
  }

 private:
  // A virtual device that has a local lease.
  struct Device {
    v1::LeaseRequest request;
    std::string lease_id;
    // The report to the coordinator that the device fell back.
    v1::SessionRequest report;
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

  // Returns null while the cluster's coordinator has not opened the session.
  std::shared_ptr<CoordinatorLink> Cluster() const {
    MutexLock lock(&mu_);
    return cluster_;
  }

  bool IsHere(uint32_t virtual_device) {
    MutexLock lock(&mu_);
    return cluster_ == nullptr || devices_.contains(virtual_device);
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
    const auto cluster = Cluster();
    if (cluster == nullptr) {
      return MakeError(absl::StatusCode::kUnavailable,
                       "COORDINATOR_UNREACHABLE",
                       "the cluster's coordinator was not reached");
    }
    absl::StatusOr<v1::LeaseGranted> granted =
        cluster->RequestLease(request, timeout);
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
    cluster->ReturnLease(lease.lease_id(), /*unreachable=*/false);
    return MakeError(
        absl::StatusCode::kUnavailable, "WORKER_UNREACHABLE",
        absl::StrCat("worker ", lease.worker_id(), " at ",
                     lease.worker_address(), " was not reached ",
                     kMostUnreached, " times, and the cluster has no other"),
        {{"worker", lease.worker_id()}});
  }

  absl::StatusOr<v1::LeaseGranted> AskLocal(const v1::LeaseRequest& request,
                                            const absl::Status& why,
                                            const Deadline& deadline) {
    absl::StatusOr<v1::LeaseGranted> granted;
    const int threads = ThreadsOf(request.numerics(), options_.worker_threads);
    // A local worker that died needs a new process.
    for (int tries = 0; tries < 2; ++tries) {
      const absl::StatusOr<std::shared_ptr<LocalClusters::Local>> local =
          clusters_.Start(session_id_, threads, deadline);
      if (!local.ok()) return Both(why, local.status());
      granted = LocalClusters::RequestLease(**local, request, deadline);
      if (granted.ok()) {
        leases_->Add(granted->lease().lease_id(), (*local)->cluster.connector);
        break;
      }
      if (!absl::IsUnavailable(granted.status()) &&
          !absl::IsDeadlineExceeded(granted.status())) {
        break;
      }
      clusters_.Drop(*local);
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
    v1::SessionRequest report;
    v1::RecoveryReport* const recovered = report.mutable_recovered();
    recovered->set_virtual_device(request.virtual_device());
    recovered->set_kind(v1::RecoveryReport::LOCAL_FALLBACK);
    recovered->set_to_worker_id(worker);
    recovered->mutable_cause()->set_code(static_cast<int32_t>(why.code()));
    recovered->mutable_cause()->set_reason(ErrorReason(why));
    std::shared_ptr<CoordinatorLink> cluster;
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the session closes");
      cluster = cluster_;
      Device& device = devices_[request.virtual_device()];
      device.report = report;
      device.request = request;
      const auto went = went_back_.find(request.virtual_device());
      device.stays = went != went_back_.end() &&
                     Clock::Real()->Monotonic() - went->second < kUnreachedLife;
      // The device may hold other contents when it goes back, of the same size.
      if (request.recovers()) {
        uint64_t needed = request.needed_bytes();
        for (const v1::ContentHint& hint : request.contents()) {
          needed += hint.size_bytes();
        }
        device.request.set_needed_bytes(needed);
      }
      device.request.clear_contents();
      device.lease_id = granted->lease().lease_id();
      StartReturner();
    }
    // Reopen() sends the report otherwise.
    if (cluster != nullptr) cluster->Report(std::move(report));
    return granted;
  }

  void StartReturner() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (returner_.joinable() || closed_) return;
    returner_ = std::thread([this] { KeepAsking(); });
  }

  void ReturnLocal(const std::string& lease_id) {
    leases_->Remove(lease_id);
    std::optional<v1::LeaseGranted> offer;
    {
      MutexLock lock(&mu_);
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
    clusters_.ReturnLease(lease_id);
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

  // Opens the session at the cluster's coordinator, which was not reached
  // before. Returns its error.
  absl::Status Reopen() {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<CoordinatorLink> link,
                           options_.reopen(session_id_));
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the session closes");
      attaching_ = link;
    }
    const absl::Status status =
        link->Open(program_, kAskTimeout, events_).status();
    std::vector<v1::SessionRequest> reports;
    {
      MutexLock lock(&mu_);
      attaching_ = nullptr;
      DJINN_RETURN_IF_ERROR(status);
      cluster_ = link;
      for (const auto& [number, device] : devices_) {
        reports.push_back(device.report);
      }
    }
    log::Info("the cluster is reached; it has the session now");
    for (v1::SessionRequest& report : reports) link->Report(std::move(report));
    events_->OnAttachedAgain();
    return absl::OkStatus();
  }

  // The returner: opens the session at the cluster if that was not reached, and
  // asks it for a worker for each device that is here.
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
      if (Cluster() == nullptr) {
        const absl::Status status = Reopen();
        if (AfterCoordinatorError(status) == Remedy::kGiveUp) {
          log::Warning("the session stays on this machine",
                       {{"error", status}});
          return;
        }
        if (!status.ok()) continue;
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

  const FallbackOptions options_;
  const std::shared_ptr<LocalLeases> leases_;
  LocalClusters clusters_;
  // Set by Open().
  std::string program_;
  std::string session_id_;
  CoordinatorEvents* events_ = nullptr;

  mutable Mutex mu_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // See Cluster(), and the link with which Reopen() tries it.
  std::shared_ptr<CoordinatorLink> cluster_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<CoordinatorLink> attaching_ ABSL_GUARDED_BY(mu_);
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

}  // namespace djinn
