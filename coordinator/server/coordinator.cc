#include "coordinator/server/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/metrics/process_metrics.h"
#include "common/net/monitoring/certificate_metrics.h"
#include "common/net/tracing/tracing.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/persistence/memory_store.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/persistence/sqlite_store.h"
#include "coordinator/rpc/services.h"

namespace djinn::coordinator {
namespace {

// How long streams have to end after they were told the reason.
constexpr absl::Duration kStopGrace = absl::Seconds(1);
// The longest interval of ticks. No time-out needs to take effect more
// precisely.
constexpr absl::Duration kMaxTick = absl::Milliseconds(200);
// A process that has not read its clock for this many ticks was suspended: on a
// busy machine, a tick is late by less.
constexpr int kMaxLateTicks = 4;

}  // namespace

Coordinator::Coordinator(Config config, Clock* clock, RandomSource* random,
                         ReadConfigFunction read_config, bool tick)
    : config_(std::move(config)),
      period_(std::min(kMaxTick, config_.heartbeat_interval / 4)),
      clock_(clock, tick ? kMaxLateTicks * period_ : absl::InfiniteDuration()),
      tenants_(config_.tenants),
      credentials_(OperatorsOf(config_), config_.join_token),
      cluster_(MakeCluster(&config_, &tenants_, &clock_, random)),
      reloader_(&config_, std::move(read_config), cluster_.get(), &credentials_,
                clock),
      quotas_(cluster_.get(), [this] { return keeper_->Write(); }),
      graphs_(config_.graph_store_bytes),
      intake_(&graphs_),
      workers_(MakeWorkerRegistryService(&credentials_, cluster_.get(),
                                         &call_metrics_, &unproven_)),
      departures_(MakeWorkerDepartureService(&credentials_, cluster_.get(),
                                             &unproven_)),
      admin_(MakeAdminService(&credentials_, cluster_.get(), &graphs_,
                              &reloader_, &quotas_, &unproven_)),
      scaler_(Scaler(config_.scaler.target_utilisation,
                     [this] { return demand::Demand(*cluster_); })) {}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Config config, Clock* clock, RandomSource* random,
    ReadConfigFunction read_config, bool tick, const Leadership* leadership) {
  auto coordinator = absl::WrapUnique(new Coordinator(
      std::move(config), clock, random, std::move(read_config), tick));
  DJINN_RETURN_IF_ERROR(coordinator->OpenState(clock, random, leadership));
  DJINN_ASSIGN_OR_RETURN(
      coordinator->spans_,
      StartTracing(coordinator->config_.tracing, "djinn-coordinator",
                   coordinator->config_.advertise.empty()
                       ? coordinator->config_.listen
                       : coordinator->config_.advertise,
                   clock));
  coordinator->sessions_ = MakeSessionService(
      &coordinator->tenants_, coordinator->cluster_.get(),
      &coordinator->graphs_, &coordinator->intake_, coordinator->spans_.get(),
      &coordinator->call_metrics_, &coordinator->unproven_);
  ServerOptions options;
  options.address = coordinator->config_.listen;
  options.tls = coordinator->config_.tls;
  options.insecure = coordinator->config_.insecure;
  options.services = {coordinator->sessions_.get(), coordinator->workers_.get(),
                      coordinator->departures_.get(),
                      coordinator->admin_.get()};
  options.health_services = {"djinn.v1.Session", "djinn.v1.WorkerRegistry",
                             "djinn.v1.WorkerDeparture", "djinn.v1.Admin"};
  options.serving = false;
  options.is_operator =
      [credentials = &coordinator->credentials_](absl::string_view token) {
        return credentials->Admit(token, Role::kViewer).ok();
      };
  options.call_metrics = &coordinator->call_metrics_;
  options.unproven = &coordinator->unproven_;
  DJINN_ASSIGN_OR_RETURN(coordinator->server_, Server::Start(options));
  DJINN_RETURN_IF_ERROR(coordinator->StartScaler());
  coordinator->readiness_ = std::make_unique<Readiness>(
      [keeper = coordinator->keeper_.get()] {
        return std::vector<ReadinessCheck>{{"store", keeper->failure()}};
      },
      [server = coordinator->server_.get(),
       scaler = coordinator->scaler_server_.get()](bool ready) {
        server->SetServing(ready);
        if (scaler != nullptr) scaler->SetServing(ready);
      });
  DJINN_RETURN_IF_ERROR(coordinator->StartMonitoring());
  if (tick) {
    coordinator->ticker_ =
        std::thread([raw = coordinator.get()] { raw->TickUntilStopped(); });
  }
  return coordinator;
}

absl::Status Coordinator::OpenKeeper(Clock* clock, RandomSource* random,
                                     const Leadership* leadership) {
  if (leadership != nullptr) {
    DJINN_ASSIGN_OR_RETURN(
        keeper_, StateKeeper::Open(leadership->store, clock, leadership->owner,
                                   leadership->lease));
    if (keeper_->term() != leadership->term) {
      return MakeError(absl::StatusCode::kAborted, "LEADERSHIP_LOST",
                       absl::StrCat("term ", leadership->term, " has ended"));
    }
    MutexLock lock(&cluster_->mu);
    cluster_->term = leadership->term;
    return absl::OkStatus();
  }
  if (config_.state_file.empty()) {
    store_ = std::make_unique<MemoryStore>();
  } else {
    DJINN_ASSIGN_OR_RETURN(store_, SqliteStore::Open({config_.state_file}));
  }
  DJINN_ASSIGN_OR_RETURN(
      keeper_, StateKeeper::Open(store_.get(), clock, random->HexId()));
  return absl::OkStatus();
}

absl::Status Coordinator::OpenState(Clock* clock, RandomSource* random,
                                    const Leadership* leadership) {
  DJINN_RETURN_IF_ERROR(OpenKeeper(clock, random, leadership));
  if (leadership != nullptr || store_->persistent()) {
    DJINN_ASSIGN_OR_RETURN(const StateKeeper::State state, keeper_->Read());
    DJINN_RETURN_IF_ERROR(persistence::Restore(*cluster_, state));
    log::Info("state restored",
              {{"entries", state.size()}, {"term", keeper_->term()}});
  }
  keeper_->Start([this] { return persistence::Save(*cluster_); },
                 [this] { persistence::NoteKept(*cluster_); });
  // A key must be saved before anything is signed with it.
  return keeper_->Write();
}

absl::Status Coordinator::StartScaler() {
  if (config_.scaler.listen.empty()) return absl::OkStatus();
  ServerOptions options;
  options.address = config_.scaler.listen;
  options.tls = config_.tls;
  options.insecure = config_.scaler.insecure;
  options.services = {&scaler_};
  options.health_services = {"externalscaler.ExternalScaler"};
  options.call_metrics = &call_metrics_;
  DJINN_ASSIGN_OR_RETURN(scaler_server_, Server::Start(options));
  log::Info("scaler serves", {{"address", scaler_server_->address()}});
  return absl::OkStatus();
}

absl::Status Coordinator::StartMonitoring() {
  if (config_.monitoring.listen.empty()) return absl::OkStatus();
  MonitoringOptions options;
  options.address = config_.monitoring.listen;
  options.insecure = config_.monitoring.insecure;
  options.sources = {
      ProcessMetrics("coordinator"),
      [this](Exposition* out) { scrape::Collect(*cluster_, out); },
      [this](Exposition* out) { call_metrics_.Collect(out); },
      [this](Exposition* out) { keeper_->Collect(out); },
      [this](Exposition* out) { reloader_.Collect(out); },
      [this](Exposition* out) { readiness_->Collect(out); },
      [this](Exposition* out) { CollectSpans(spans_.get(), out); },
      CertificateMetrics({{"tls", config_.tls.certificate_file},
                          {"etcd.tls", config_.etcd.tls.certificate_file}}),
      [this](Exposition* out) {
        const GraphStore::Stats stats = graphs_.stats();
        out->Gauge("djinn_graphs", "Graphs in the graph store.",
                   static_cast<double>(stats.graphs));
        out->Gauge("djinn_graph_store_bytes",
                   "Bytes of the graphs in the graph store.",
                   static_cast<double>(stats.bytes));
      }};
  options.readiness = [this] { return readiness_->Evaluate(); };
  DJINN_ASSIGN_OR_RETURN(monitoring_, MonitoringPort::Open(std::move(options)));
  return absl::OkStatus();
}

Coordinator::~Coordinator() { Stop(); }

void Coordinator::Stop() {
  if (readiness_ != nullptr) readiness_->Leave("the coordinator stops");
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  if (ticker_.joinable()) ticker_.join();
  if (server_ == nullptr) return;
  coordinator::Stop(*cluster_);
  server_->Shutdown(kStopGrace);
  // The scaler's streams never end by themselves, so they get no grace.
  if (scaler_server_ != nullptr) {
    scaler_server_->Shutdown(absl::ZeroDuration());
  }
  keeper_->Stop();
}

void Coordinator::TickUntilStopped() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) stopped_.WaitWithTimeout(&mu_, period_);
      if (stopping_) return;
    }
    coordinator::Tick(*cluster_);
    if (const absl::Duration left_out = clock_.TakeLeftOut();
        left_out > absl::ZeroDuration()) {
      log::Warning("process was suspended; deadlines extended",
                   {{"for", left_out}});
    }
  }
}

}  // namespace djinn::coordinator
