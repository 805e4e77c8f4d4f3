#include "gpu_worker/core/worker_core.h"

#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "djinn/v1/bulk.pb.h"
#include "gpu_worker/leases/lease_turn.h"

namespace djinn::worker {
namespace {

constexpr size_t kMaxContents = 16384;

absl::Status Draining() {
  return MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                   "the worker stops");
}

}  // namespace

WorkerCore::WorkerCore(WorkerCoreOptions options, Device* device, Clock* clock,
                       RandomSource* random)
    : options_(std::move(options)),
      device_(device),
      clock_(clock),
      incarnation_(options_.incarnation != 0 ? options_.incarnation
                                             : random->NonZero64()),
      ledger_(device->memory_bytes()),
      memory_(device, &ledger_),
      contents_(kMaxContents, clock),
      relief_(
          &memory_, &contents_, [this] { NotifyChange(); },
          [this](uint64_t missing) { return streams_.EndLost(missing); }),
      graphs_(options_.graph_cache),
      proofs_(device, random, options_.max_challenges),
      offers_({.offer_timeout = options_.offer_timeout,
               .claim_timeout = options_.transfer_idle_timeout},
              clock),
      pulls_(options_.worker_id, incarnation_, &offers_),
      link_rates_(clock),
      upload_rate_(clock),
      leases_(options_.worker_id, incarnation_, options_.max_ended_leases,
              clock, &traffic_, options_.one_tenant),
      executor_({.max_batch_runs = options_.max_batch_runs,
                 .tokens_first = options_.tokens_first,
                 .gate = options_.gate},
                device, &ledger_, clock, &metrics_.tenants,
                [this] { NotifyChange(); }),
      environment_({.worker_id = options_.worker_id,
                    .clock = clock,
                    .random = random,
                    .memory = &memory_,
                    .contents = &contents_,
                    .proofs = &proofs_,
                    .store = options_.store.get(),
                    .graphs = &graphs_,
                    .offers = &offers_,
                    .pulls = &pulls_,
                    .links = &link_rates_,
                    .uploads = &upload_rate_,
                    .counters = &counters_,
                    .edge = executor_.edge(),
                    .served = executor_.served(),
                    .transfer_idle_timeout = options_.transfer_idle_timeout,
                    .metrics = &metrics_,
                    .contents_changed = [this] { NotifyChange(); },
                    .spans = options_.spans}),
      streams_({.worker_id = options_.worker_id,
                .incarnation = incarnation_,
                .max_connections = options_.max_connections,
                .hello_timeout = options_.hello_timeout,
                .resume_timeout = options_.resume_timeout,
                .speed = options_.speed,
                .numerics = options_.numerics,
                .executor_per_tenant = options_.one_tenant},
               &environment_, device, &leases_, &executor_.queue(),
               [this] { NotifyChange(); }),
      report_(environment_, {.incarnation = incarnation_,
                             .traffic = traffic_,
                             .leases = leases_,
                             .executor = executor_,
                             .streams = streams_}),
      watch_(device, clock, options_.min_free_bytes),
      housekeeping_({.interval = options_.housekeeping_interval,
                     .device_broken = options_.device_broken,
                     .changed = [this] { NotifyChange(); }},
                    device, clock, &leases_, &streams_, &offers_, &relief_,
                    &watch_) {
  proofs_.Start();
  if (options_.store != nullptr) {
    options_.store->Bind(device_, &contents_);
    options_.store->Start();
  }
  if (!options_.own_threads) return;
  executor_.Start();
  housekeeping_.Start();
}

WorkerCore::~WorkerCore() {
  Shutdown();
  if (options_.store != nullptr) options_.store->Stop();
}

void WorkerCore::Shutdown() {
  if (streams_.draining()) return;
  streams_.Shutdown(Draining());
  offers_.Shutdown(Draining());
  pulls_.Shutdown();
  housekeeping_.Finish();
  // The executor receives from no stream now: all are closed.
  executor_.Stop();
}

void WorkerCore::SetChangeListener(std::function<void()> listener) {
  MutexLock lock(&mu_);
  change_listener_ = std::move(listener);
}

void WorkerCore::NotifyChange() {
  std::function<void()> listener;
  {
    MutexLock lock(&mu_);
    listener = change_listener_;
  }
  if (listener) listener();
}

void WorkerCore::Attach(std::unique_ptr<WorkerStream> stream, StreamWay way) {
  streams_.Attach(std::move(stream), way);
}

absl::StatusOr<std::string> WorkerCore::LeaseOf(
    const v1::BulkHello& hello) const {
  DJINN_ASSIGN_OR_RETURN(const v1::SignedLease signed_lease,
                         ParseLeaseToken(hello.lease_token()));
  DJINN_ASSIGN_OR_RETURN(const v1::LeaseClaims claims,
                         leases_.ClaimsOf(signed_lease));
  const std::optional<Lease> lease = leases_.Find(claims.lease_id());
  if (!lease.has_value() || claims.session_id() != hello.session_id() ||
      lease->claims.session_id() != hello.session_id()) {
    return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN",
                     "no stream of this session presented such a lease");
  }
  return claims.lease_id();
}

void WorkerCore::Pull(const v1::PullRequest& request,
                      std::shared_ptr<OfferClaimant> claimant) {
  absl::Status refused;
  if (streams_.draining()) {
    refused = Draining();
  } else if (request.worker_incarnation() != incarnation_) {
    refused =
        MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                  "the worker restarted since the bytes were offered");
  } else if (!OfferTable::IsTicket(request.ticket()) ||
             !leases_.HasSession(request.session_id())) {
    refused = OfferTable::Unknown();
  }
  if (!refused.ok()) return claimant->Refuse(std::move(refused));
  offers_.Claim(request, std::move(claimant));
}

SendUrgency WorkerCore::UrgencyOf(const std::string& session_id) const {
  const std::optional<Lease> lease = leases_.FindSession(session_id);
  if (!lease.has_value()) return {};
  const v1::LeaseClaims& claims = lease->claims;
  // The session's own phase does not matter: another session waits for the
  // value.
  const int priority =
      PriorityOf(claims.urgency().priority_class(), v1::PHASE_UNSPECIFIED);
  return {claims.tenant(), priority,
          clock_->Monotonic() + RunDeadlineOf(claims)};
}

void WorkerCore::Apply(const v1::DesiredState& desired) {
  bool changed = false;
  pulls_.Learn(desired);
  leases_.Learn(desired);
  contents_.SetSharing(
      {desired.sharing_tenants().begin(), desired.sharing_tenants().end()});
  executor_.queue().SetBatchingTenants(
      {desired.batching_tenants().begin(), desired.batching_tenants().end()});
  for (const v1::GraphPhase& known : desired.graph_phases()) {
    graphs_.SetKind(known.fingerprint(), KnownPhase(known.phase()),
                    known.cache_slots(),
                    std::vector<std::string>(known.tenants().begin(),
                                             known.tenants().end()));
  }
  for (const v1::SignedLease& signed_lease : desired.leases()) {
    const absl::StatusOr<v1::LeaseClaims> claims =
        leases_.ClaimsOf(signed_lease);
    const absl::StatusOr<bool> fresh =
        claims.ok() ? leases_.Renew(signed_lease, *claims) : claims.status();
    if (!fresh.ok()) {
      log::Error("lease refused", {{"status", fresh.status()}});
      continue;
    }
    changed |= *fresh;
    const uint64_t queue_key = streams_.ApplyLease(claims->lease_id());
    if (queue_key != 0) executor_.queue().MakeRunnable(queue_key);
  }
  const auto drop = [&](const std::vector<std::string>& lease_ids,
                        absl::string_view why) {
    for (const std::string& lease_id : lease_ids) {
      changed = true;
      streams_.EndLease(lease_id, MakeError(absl::StatusCode::kAborted,
                                            "SESSION_DROPPED", why));
    }
  };
  for (const std::string& session_id : desired.drop_session_ids()) {
    drop(leases_.EndSession(session_id), "the coordinator ended the session");
  }
  for (const std::string& lease_id : desired.drop_lease_ids()) {
    drop(leases_.EndLease(lease_id), "the coordinator ended the lease");
  }
  leases_.Settle(
      {desired.settled_lease_ids().begin(), desired.settled_lease_ids().end()});
  // A report answers the questions.
  changed |= report_.SetQuestions(
      {desired.runs_questions().begin(), desired.runs_questions().end()});
  if (changed) NotifyChange();
}

bool WorkerCore::RunReady() {
  const bool served = executor_.ServeReady();
  housekeeping_.KeepHouse();
  return served;
}

}  // namespace djinn::worker
