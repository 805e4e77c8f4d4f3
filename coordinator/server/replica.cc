#include "coordinator/server/replica.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/metrics/process_metrics.h"
#include "common/net/monitoring/certificate_metrics.h"
#include "coordinator/admin/config_reloader.h"
#include "coordinator/config/config_changes.h"
#include "coordinator/rpc/services.h"

namespace djinn::coordinator {
namespace {

// The longest time after which the process notices that its lease has ended
// while the store does not answer.
constexpr absl::Duration kMaxWait = absl::Milliseconds(100);

}  // namespace

Replica::Follower::Follower(const Config& config,
                            std::function<std::string()> leader)
    : credentials(OperatorsOf(config), config.join_token),
      service(MakeFollowerService(&credentials, std::move(leader), &unproven)) {
}

Replica::Replica(Config config, std::unique_ptr<Store> store, Clock* clock,
                 RandomSource* random,
                 Coordinator::ReadConfigFunction read_config)
    : store_(std::move(store)),
      clock_(clock),
      random_(random),
      read_config_(std::move(read_config)),
      config_(std::move(config)) {}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Start(
    Config config, std::unique_ptr<Store> store, Clock* clock,
    RandomSource* random, Coordinator::ReadConfigFunction read_config) {
  auto replica =
      absl::WrapUnique(new Replica(std::move(config), std::move(store), clock,
                                   random, std::move(read_config)));
  ElectionOptions options;
  {
    MutexLock lock(&replica->roles_mu_);
    DJINN_RETURN_IF_ERROR(replica->Follow());
    // Later servers of this process listen at the ports of the first ones.
    replica->config_.listen = replica->follower_->server->address();
    if (replica->follower_->monitoring != nullptr) {
      const std::string address = replica->follower_->monitoring->address();
      if (!address.empty()) replica->config_.monitoring.listen = address;
    }
    replica->address_ = replica->config_.listen;
    replica->monitoring_address_ = replica->config_.monitoring.listen;
    options.id = random->HexId();
    options.address = replica->config_.advertise.empty()
                          ? replica->config_.listen
                          : replica->config_.advertise;
    options.lease = replica->config_.etcd.lease;
  }
  {
    // Calls may have come already.
    MutexLock lock(&replica->mu_);
    replica->election_ = std::make_unique<Election>(replica->store_.get(),
                                                    clock, std::move(options));
  }
  replica->thread_ = std::thread([raw = replica.get()] { raw->Run(); });
  replica->election_->Start([raw = replica.get()] {
    MutexLock lock(&raw->mu_);
    raw->stepped_ = true;
    raw->changed_.SignalAll();
  });
  return replica;
}

Replica::~Replica() { Stop(); }

Election::View Replica::view() {
  MutexLock lock(&mu_);
  if (election_ != nullptr) return election_->view();
  Election::View none;
  none.failure = "the store was not asked yet";
  return none;
}

void Replica::Run() {
  for (;;) {
    const Election::View now = view();
    {
      MutexLock lock(&roles_mu_);
      Obey(now);
    }
    MutexLock lock(&mu_);
    if (!stepped_ && !stopping_) changed_.WaitWithTimeout(&mu_, kMaxWait);
    stepped_ = false;
    if (stopping_) return;
  }
}

void Replica::Obey(const Election::View& view) {
  if (leader_ != nullptr && (leader_->lost() || view.term != term_)) {
    log::Warning(
        "leadership lost",
        {{"term", term_}, {"leader", view.leader}, {"store", view.failure}});
    leader_->Stop();
    leader_.reset();
    term_ = 0;
    TakeConfig();
  }
  absl::Status status;
  if (leader_ == nullptr && view.term != 0) {
    follower_.reset();
    status = Lead(view.term);
    if (status.ok()) {
      log::Info("leadership won", {{"term", term_}});
    } else {
      leader_.reset();
      log::Error("elected, but cannot lead",
                 {{"term", view.term}, {"error", status}});
      election_->Resign();
    }
    MutexLock lock(&mu_);
    failure_ = std::string(status.message());
  }
  if (leader_ != nullptr || follower_ != nullptr) return;
  if (const absl::Status follows = Follow(); !follows.ok()) {
    follower_.reset();
    log::Error("cannot follow", {{"error", follows}});
  }
}

absl::StatusOr<std::string> Replica::ReadConfigAgain() {
  absl::StatusOr<Config> read = read_config_();
  if (!read.ok()) {
    log::Error("the configuration cannot be read; the last one counts",
               {{"error", read.status()}});
    return MakeError(absl::StatusCode::kFailedPrecondition, "BAD_CONFIG",
                     read.status().message());
  }
  const std::string changes = ConfigChanges(config_, *read);
  // The addresses and the store stay as they are while the process lives.
  read->listen = config_.listen;
  read->monitoring = config_.monitoring;
  read->etcd = config_.etcd;
  read->advertise = config_.advertise;
  config_ = *std::move(read);
  return changes;
}

void Replica::TakeConfig() {
  const absl::StatusOr<std::string> changes = ReadConfigAgain();
  if (!changes.ok() || !changes->empty()) AuditReload("election", changes);
}

absl::Status Replica::Lead(uint64_t term) {
  TakeConfig();
  Leadership leadership;
  leadership.store = store_.get();
  leadership.owner = election_->owner();
  leadership.term = term;
  leadership.lease = config_.etcd.lease;
  DJINN_ASSIGN_OR_RETURN(
      leader_, Coordinator::Start(config_, clock_, random_, read_config_,
                                  /*tick=*/true, &leadership));
  term_ = term;
  return absl::OkStatus();
}

absl::Status Replica::Follow() {
  follower_ =
      std::make_unique<Follower>(config_, [this] { return view().leader; });
  ServerOptions options;
  options.address = config_.listen;
  options.tls = config_.tls;
  options.insecure = config_.insecure;
  options.other_calls = follower_->service.get();
  options.unproven = &follower_->unproven;
  options.health_services = {"djinn.v1.Session", "djinn.v1.WorkerRegistry",
                             "djinn.v1.WorkerDeparture", "djinn.v1.Admin"};
  options.serving = false;
  DJINN_ASSIGN_OR_RETURN(follower_->server, Server::Start(options));
  follower_->readiness = std::make_unique<Readiness>(
      [this] {
        std::string failure = view().failure;
        if (failure.empty()) {
          MutexLock lock(&mu_);
          failure = failure_;
        }
        return std::vector<ReadinessCheck>{{"store", failure}};
      },
      [server = follower_->server.get()](bool ready) {
        server->SetServing("", ready);
        // A follower sends clients to the leader.
        server->SetServing("djinn.v1.Session", ready);
      });
  return StartMonitoring(follower_.get());
}

absl::Status Replica::StartMonitoring(Follower* follower) {
  if (config_.monitoring.listen.empty()) return absl::OkStatus();
  MonitoringOptions options;
  options.address = config_.monitoring.listen;
  options.insecure = config_.monitoring.insecure;
  options.sources = {
      ProcessMetrics("coordinator"),
      [](Exposition* out) {
        out->Gauge("djinn_coordinator_leader",
                   "1 while this process is the leader.", 0);
      },
      [follower](Exposition* out) { follower->readiness->Collect(out); },
      CertificateMetrics({{"tls", config_.tls.certificate_file},
                          {"etcd.tls", config_.etcd.tls.certificate_file}})};
  options.readiness = [follower] { return follower->readiness->Evaluate(); };
  DJINN_ASSIGN_OR_RETURN(follower->monitoring,
                         MonitoringPort::Open(std::move(options)));
  return absl::OkStatus();
}

void Replica::Reload() {
  MutexLock lock(&roles_mu_);
  if (leader_ != nullptr) return leader_->reloader()->ReloadAtSignal();
  absl::StatusOr<std::string> changes = ReadConfigAgain();
  if (changes.ok()) {
    if (follower_ != nullptr) {
      follower_->credentials.Set(OperatorsOf(config_), config_.join_token);
    }
    if (changes->empty()) changes = "nothing";
  }
  AuditReload("SIGHUP", changes);
}

void Replica::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  {
    MutexLock lock(&roles_mu_);
    // Saves the state a last time, while the lease is still this process's.
    if (leader_ != nullptr) leader_->Stop();
    leader_.reset();
    follower_.reset();
  }
  if (election_ != nullptr) election_->Stop();
}

}  // namespace djinn::coordinator
