#include "gpu_worker/supervisor/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "gpu_worker/supervisor/executor_record.h"
#include "gpu_worker/supervisor/limits.h"

namespace djinn::worker {
namespace {

// Contents and graphs in a report of the worker, and its bytes without
// contents, of which each executor has an equal part. The coordinator takes 64
// MiB.
constexpr size_t kMaxContents = 65536;
constexpr size_t kMaxGraphs = 65536;
constexpr size_t kMaxReportBytesOfAll = size_t{32} << 20;
// How long executors have to tell their clients that the worker stops.
constexpr absl::Duration kStopPatience = absl::Seconds(5);
constexpr absl::Duration kReapPause = absl::Milliseconds(5);

}  // namespace

absl::Duration BackoffOf(const SupervisorOptions& options, int deaths) {
  if (deaths <= 1) return absl::ZeroDuration();
  absl::Duration pause = options.min_backoff;
  for (int i = 2; i < deaths && pause < options.max_backoff; ++i) pause *= 2;
  return std::min(pause, options.max_backoff);
}

Supervisor::Supervisor(SupervisorOptions options, Launcher* launcher,
                       Arbiter* arbiter, Clock* clock,
                       std::function<void()> changed)
    : options_(std::move(options)),
      launcher_(launcher),
      arbiter_(arbiter),
      clock_(clock),
      changed_(std::move(changed)),
      wake_(MakeEvent().value()),
      last_exchange_(clock->Monotonic()),
      last_measured_(clock->Monotonic()) {}

Supervisor::~Supervisor() { Stop(); }

std::shared_ptr<ExecutorRecord> Supervisor::FindLocked(
    const std::string& tenant) const {
  for (const auto& [number, executor] : executors_) {
    if (executor->tenant == tenant && !executor->ending) return executor;
  }
  return nullptr;
}

absl::Duration Supervisor::StartOf(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  const Tenant& history = tenant.empty()            ? spare_
                          : found == tenants_.end() ? Tenant()
                                                    : found->second;
  return history.last_death + BackoffOf(options_, history.deaths);
}

absl::StatusOr<std::shared_ptr<ExecutorRecord>> Supervisor::Make(
    absl::Duration start) {
  auto executor = std::make_shared<Executor>();
  {
    MutexLock lock(&mu_);
    executor->number = ++last_number_;
  }
  absl::StatusOr<ExecutorListeners> listeners =
      launcher_->Listen(executor->number);
  if (!listeners.ok()) {
    {
      MutexLock lock(&mu_);
      // They may have taken all ports.
      closing_.clear();
    }
    listeners = launcher_->Listen(executor->number);
  }
  DJINN_RETURN_IF_ERROR(listeners.status());
  executor->listeners = *std::move(listeners);
  executor->start = start;
  return executor;
}

bool Supervisor::EndIdleLocked(const LeasesByTenant& kept) {
  for (const auto& [number, executor] : executors_) {
    if (executor->tenant.empty() || executor->ending) continue;
    // Its executor is about to get a lease.
    if (kept.contains(executor->tenant)) continue;
    const bool idle =
        std::all_of(executor->leases.begin(), executor->leases.end(),
                    [&executor = executor](const auto& lease) {
                      return executor->report.ended().contains(lease.first);
                    });
    if (!idle) continue;
    log::Info("executor ends to make room for another tenant",
              {{"tenant", executor->tenant}});
    executor->ending = true;
    Wake();
    return true;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<ExecutorRecord>> Supervisor::ExecutorFor(
    const std::string& tenant, const LeasesByTenant& kept) {
  absl::Duration start;
  {
    MutexLock lock(&mu_);
    if (auto found = FindLocked(tenant)) return found;
    const auto in_use = static_cast<size_t>(
        std::count_if(executors_.begin(), executors_.end(), [](const auto& e) {
          return !e.second->tenant.empty() && !e.second->ending;
        }));
    if (in_use >= options_.max_executors && !EndIdleLocked(kept)) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, "EXECUTORS_IN_USE",
          absl::StrCat("the worker has executors for ", options_.max_executors,
                       " tenants (isolation.executors), and all have leases"));
    }
    start = StartOf(tenant);
    const std::shared_ptr<Executor> spare = FindLocked("");
    if (spare != nullptr && start <= clock_->Monotonic()) {
      spare->tenant = tenant;
      log::Info("executor serves a tenant",
                {{"tenant", tenant}, {"number", spare->number}});
      return spare;
    }
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Executor> made, Make(start));
  MutexLock lock(&mu_);
  made->tenant = tenant;
  executors_[made->number] = made;
  log::Info(
      "executor serves a tenant",
      {{"tenant", tenant},
       {"number", made->number},
       {"pause", std::max(start - clock_->Monotonic(), absl::ZeroDuration())}});
  return made;
}

void Supervisor::NoteEnd(const std::string& lease_id, v1::EndedLease ended) {
  ended.set_measuring(false);
  ended_[lease_id] = std::move(ended);
  if (ended_.size() <= options_.max_ended_leases) return;
  ++unbilled_;
  log::Warning("what a lease used is not billed: too many wait to be settled",
               {{"lease", ended_.begin()->first}, {"unbilled", unbilled_}});
  ended_.erase(ended_.begin());
}

void Supervisor::RefuseLeases(const std::vector<v1::SignedLease>& leases,
                              const absl::Status& why) {
  MutexLock lock(&mu_);
  for (const v1::SignedLease& lease : leases) {
    const v1::LeaseClaims claims = UncheckedClaims(lease);
    log::Error("lease refused", {{"tenant", claims.tenant()}, {"status", why}});
    v1::EndedLease ended;
    *ended.mutable_lease() = lease;
    ended.set_reason(ErrorReason(why));
    NoteEnd(claims.lease_id(), std::move(ended));
  }
}

void Supervisor::SendToAll(const v1::ToExecutor& message) {
  for (const auto& [number, executor] : executors_) {
    if (executor->pid != 0) executor->Send(message);
  }
}

void Supervisor::Apply(const v1::DesiredState& desired) {
  LeasesByTenant by_tenant;
  for (const v1::SignedLease& lease : desired.leases()) {
    by_tenant[UncheckedClaims(lease).tenant()].push_back(lease);
  }
  std::map<uint64_t, std::vector<v1::SignedLease>> by_executor;
  bool refused = false;
  for (const auto& [tenant, leases] : by_tenant) {
    const auto executor = ExecutorFor(tenant, by_tenant);
    if (!executor.ok()) {
      refused = true;
      RefuseLeases(leases, executor.status());
      continue;
    }
    by_executor[(*executor)->number] = leases;
  }
  {
    MutexLock lock(&mu_);
    orders_.Learn(desired);
    for (const std::string& id : desired.settled_lease_ids()) ended_.erase(id);
    for (const auto& [number, executor] : executors_) {
      if (executor->tenant.empty() || executor->ending) continue;
      if (desired.revision() == 1) {
        // Leases are renewed by their listing on the new stream.
        executor->revision = 0;
        executor->restarted = true;
        for (auto& [id, lease] : executor->leases) lease.listed = 0;
      }
      const v1::DesiredState rest = StandingOrders::PartOf(
          desired, executor->tenant, executor->leases, executor->report);
      v1::DesiredState part = rest;
      if (executor->revision == 0) {
        part = orders_.AllFor(executor->tenant);
        for (const auto& [fingerprint, runs] : executor->report.graphs()) {
          orders_.AddPhases(fingerprint, executor->tenant, &part);
        }
        *part.mutable_drop_session_ids() = rest.drop_session_ids();
        *part.mutable_drop_lease_ids() = rest.drop_lease_ids();
        *part.mutable_settled_lease_ids() = rest.settled_lease_ids();
        *part.mutable_runs_questions() = rest.runs_questions();
      }
      // Before new leases: these may be of the same sessions.
      NoteDrops(part, executor.get());
      const auto given = by_executor.extract(number);
      const auto none = std::vector<v1::SignedLease>();
      for (const v1::SignedLease& lease : given ? given.mapped() : none) {
        const v1::LeaseClaims claims = UncheckedClaims(lease);
        const auto [known, is_new] =
            executor->leases.try_emplace(claims.lease_id());
        if (is_new) known->second.since = clock_->Monotonic();
        known->second.lease = lease;
        known->second.session_id = claims.session_id();
        known->second.listed = executor->revision + 1;
        known->second.given = executor->lived;
        known->second.valid = FromProtoDuration(claims.valid_for()) +
                              FromProtoDuration(claims.grace());
        const v1::TenantLimits& limits = claims.tenant_limits();
        executor->node_limit = limits.has_node_limit()
                                   ? FromProtoDuration(limits.node_limit())
                                   : absl::InfiniteDuration();
        executor->leaving.erase(claims.lease_id());
        *part.add_leases() = lease;
        arbiter_->SetWeight(number, claims.weight());
      }
      executor->questions.clear();
      for (const v1::RunsQuestion& question : part.runs_questions()) {
        executor->questions[question.question_id()] = question.session_id();
      }
      executor->SendOrders(std::move(part));
    }
  }
  // Executors that ended since they were chosen.
  for (const auto& [number, leases] : by_executor) {
    refused = true;
    RefuseLeases(leases,
                 MakeError(absl::StatusCode::kUnavailable, "EXECUTOR_LOST",
                           "the tenant's executor ended before its lease"));
  }
  Wake();
  if (refused) changed_();
}

v1::WorkerState Supervisor::Snapshot() const {
  v1::WorkerState state;
  state.set_worker_id(options_.worker_id);
  state.set_incarnation(options_.incarnation);
  state.set_protocol_version(kProtocolVersion);
  state.set_memory_bytes(options_.memory_bytes);
  DescribeEndpoints(&state);
  MutexLock lock(&mu_);
  state.set_device(facts_.device());
  state.set_numerics(facts_.numerics());
  if (facts_.speed().flops_per_second() > 0) {
    *state.mutable_speed() = facts_.speed();
  }
  *state.mutable_executed() = executed_;
  uint64_t used = 0;
  for (const auto& [number, executor] : executors_) {
    if (executor->tenant.empty()) continue;
    executor->report.AddTo(
        executor->tenant,
        {.contents = kMaxContents / options_.max_executors,
         .graphs = kMaxGraphs / options_.max_executors,
         .bytes = kMaxReportBytesOfAll / options_.max_executors},
        &state);
    used += executor->report.used_bytes();
  }
  for (const auto& [id, ended] : ended_) *state.add_ended_leases() = ended;
  state.set_free_bytes(options_.memory_bytes -
                       std::min(used, options_.memory_bytes));
  return state;
}

void Supervisor::DescribeEndpoints(v1::WorkerState* state) const {
  state->clear_tenant_endpoints();
  MutexLock lock(&mu_);
  for (const auto& [number, executor] : executors_) {
    if (executor->tenant.empty() || executor->ending) continue;
    v1::TenantEndpoint* const endpoint = state->add_tenant_endpoints();
    endpoint->set_tenant(executor->tenant);
    endpoint->set_address(executor->listeners.address);
    endpoint->set_shared_memory_socket(
        executor->listeners.shared_memory_socket);
  }
}

void Supervisor::SetTls(const v1::TlsTexts& tls) {
  {
    MutexLock lock(&mu_);
    tls_ = tls;
    v1::ToExecutor message;
    *message.mutable_tls() = tls;
    SendToAll(message);
  }
  Wake();
}

void Supervisor::SetServing(bool serving) {
  {
    MutexLock lock(&mu_);
    serving_ = serving;
    v1::ToExecutor message;
    message.set_serving(serving);
    SendToAll(message);
  }
  Wake();
}

void Supervisor::Step(absl::Duration patience) {
  KeepSpare();
  LaunchDue();
  Measure();
  Exchange(patience);
}

absl::Status Supervisor::Ready() const {
  MutexLock lock(&mu_);
  if (ready_) return absl::OkStatus();
  if (!last_failure_.ok()) return last_failure_;
  return absl::UnavailableError("no executor is ready yet");
}

v1::ExecutorReady Supervisor::facts() const {
  MutexLock lock(&mu_);
  return facts_;
}

uint64_t Supervisor::available_bytes() const {
  MutexLock lock(&mu_);
  uint64_t most = 0;
  for (const auto& [number, executor] : executors_) {
    most = std::max(most, executor->available_bytes);
  }
  return most;
}

std::string Supervisor::TenantOf(uint64_t executor) const {
  MutexLock lock(&mu_);
  const auto found = executors_.find(executor);
  return found == executors_.end() ? "" : found->second->tenant;
}

void Supervisor::Refuse(uint64_t executor, const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    const auto found = executors_.find(executor);
    if (found == executors_.end()) return;
    found->second->fault = why;
  }
  Wake();
}

bool Supervisor::HasSession(uint64_t executor,
                            const std::string& session_id) const {
  MutexLock lock(&mu_);
  const auto found = executors_.find(executor);
  return found != executors_.end() && found->second->HasSession(session_id);
}

std::string Supervisor::AddressOf(const std::string& session_id) const {
  MutexLock lock(&mu_);
  for (const auto& [number, executor] : executors_) {
    if (!executor->ending && executor->HasSession(session_id)) {
      return executor->listeners.address;
    }
  }
  return "";
}

void Supervisor::Stop() {
  std::vector<std::shared_ptr<Executor>> last;
  {
    MutexLock lock(&mu_);
    for (const auto& [number, executor] : executors_) {
      executor->ending = true;
      // Its sessions end as the socket does.
      executor->socket = Descriptor();
      executor->listeners.listener = Descriptor();
      last.push_back(executor);
    }
    executors_.clear();
    closing_.clear();
  }
  std::erase_if(last, [](const auto& executor) { return executor->pid == 0; });
  const absl::Time deadline = absl::Now() + kStopPatience;
  bool killed = false;
  while (!last.empty()) {
    std::erase_if(last, [&](const std::shared_ptr<Executor>& executor) {
      if (!launcher_->Reap(executor->pid).has_value()) return false;
      LogForExecutor(executor->tenant, executor->number,
                     executor->log.TakeLast());
      return true;
    });
    if (!killed && absl::Now() > deadline) {
      killed = true;
      for (const auto& executor : last) launcher_->Kill(executor->pid);
    }
    if (absl::Now() > deadline + kStopPatience) break;
    if (!last.empty()) absl::SleepFor(kReapPause);
  }
}

void Supervisor::Collect(Exposition* out) const {
  MutexLock lock(&mu_);
  size_t serving = 0;
  uint64_t refused = refused_calls_;
  for (const auto& [number, executor] : executors_) {
    serving += executor->tenant.empty() ? 0 : 1;
    refused += executor->refused_calls;
  }
  out->Gauge("djinn_worker_executors", "Executor processes, by use.",
             static_cast<double>(serving), {{"use", "tenant"}});
  out->Gauge("djinn_worker_executors", "Executor processes, by use.",
             static_cast<double>(executors_.size() - serving),
             {{"use", "spare"}});
  if (facts_.gpu_memory().context_bytes() > 0) {
    out->Gauge("djinn_worker_executor_context_bytes",
               "Memory of the GPU that the first executor process took before "
               "it held a value.",
               static_cast<double>(facts_.gpu_memory().context_bytes()));
  }
  out->Counter("djinn_worker_device_handovers_total",
               "Times that the device passed from one executor to another.",
               static_cast<double>(arbiter_->handovers()));
  out->Counter("djinn_worker_overdue_turns_total",
               "Turns that went on beside another executor's, because they "
               "took too long.",
               static_cast<double>(arbiter_->overdue_turns()));
  out->Counter("djinn_worker_refused_system_calls_total",
               "System calls that sandboxes of executors refused.",
               static_cast<double>(refused));
  for (const auto& [tenant, history] : tenants_) {
    out->Counter("djinn_worker_executor_deaths_total",
                 "Executor processes that ended by themselves or were killed.",
                 static_cast<double>(history.all_deaths), {{"tenant", tenant}});
  }
  for (const auto& [reason, count] : ends_) {
    out->Counter("djinn_worker_executor_ends_total",
                 "Executor processes that ended by themselves or were killed, "
                 "by reason.",
                 static_cast<double>(count), {{"reason", reason}});
  }
}

void Supervisor::CollectExecutors(Exposition* out) const {
  MutexLock lock(&mu_);
  JoinedMetrics joined = past_metrics_;
  for (const auto& [number, executor] : executors_) {
    if (!executor->tenant.empty()) {
      joined.Add(*families_, executor->metrics,
                 tenant_labels_.For(executor->tenant));
    }
  }
  // The executors count their own.
  Exposition unbilled;
  unbilled.Counter("djinn_worker_unbilled_leases_total",
                   "Ended leases whose use was forgotten before the "
                   "coordinator had it billed: too many waited.",
                   static_cast<double>(unbilled_));
  const v1::ExecutorMetrics encoded = JoinedMetrics::Encode(unbilled);
  joined.Add(FamiliesOf(encoded), encoded, "");
  joined.AddTo(out);
}

}  // namespace djinn::worker
