// Leases, deadlines, and what the coordinator hears.
#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_set.h"
#include "common/error.h"
#include "common/lease/phase_times.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/core/connection.h"
#include "gpu_worker/core/lease_turn.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {
namespace {

// So many that a report stays a small part of what a message may have.
constexpr size_t kMaxReportedContents = 64 << 10;

void ReportMemory(const Ledger::Usage& usage, uint64_t idle_content_bytes,
                  uint64_t cache_bytes, v1::MemoryUse* memory) {
  const auto bytes = [&](MemoryClass memory_class) {
    return usage.by_class[static_cast<size_t>(memory_class)];
  };
  memory->set_storage_bytes(bytes(MemoryClass::kStorages));
  memory->set_cache_bytes(std::min(cache_bytes, bytes(MemoryClass::kStorages)));
  memory->set_content_bytes(bytes(MemoryClass::kContents));
  memory->set_idle_content_bytes(idle_content_bytes);
  memory->set_transfer_bytes(bytes(MemoryClass::kTransfers));
}

template <typename Stats>
void ReportCache(const Stats& stats, v1::CacheUse* cache) {
  cache->set_hits(stats.hits);
  cache->set_misses(stats.misses);
  cache->set_evictions(stats.evictions);
}

void ReportDisk(const ContentStore::Stats& stats, v1::DiskUse* disk) {
  v1::CacheUse* const cache = disk->mutable_cache();
  ReportCache(stats, cache);
  cache->set_entries(stats.entries);
  cache->set_size_bytes(stats.bytes);
  disk->set_limit_bytes(stats.limit_bytes);
  disk->set_failed_writes(stats.failed_writes);
  disk->set_corrupt_files(stats.corrupt_files);
  disk->set_failure(stats.failure);
}

void ReportExecuted(const ExecutionCounters& counters,
                    v1::ExecutionUse* executed) {
  executed->set_runs(counters.runs);
  executed->set_nodes(counters.nodes);
  executed->set_failed_nodes(counters.failed_nodes);
  executed->set_skipped_nodes(counters.skipped_nodes);
}

}  // namespace

bool WorkerCore::EndedLease::measuring() const {
  if (meter.use_count() > 1) return true;
  // What those who are gone have added is seen.
  std::atomic_thread_fence(std::memory_order_acquire);
  return false;
}

void WorkerCore::ExpireAndCheck() {
  const absl::Duration now = clock_->Monotonic();
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<std::shared_ptr<Session>> ended;
  bool changed = false;
  {
    MutexLock lock(&mu_);
    for (Lease& lease : leases_.TakeExpired(Now())) {
      changed = true;
      log::Warning("lease expired", {{"lease", lease.claims.lease_id()}});
      ended.push_back(EndLeaseLocked(
          std::move(lease),
          MakeError(absl::StatusCode::kAborted, "LEASE_EXPIRED",
                    "the coordinator did not renew the lease in time")));
    }
    std::vector<std::string> given_up;
    for (const auto& [lease_id, held] : sessions_) {
      if (held.connection == 0 &&
          now - held.detached_since >= options_.resume_timeout) {
        given_up.push_back(lease_id);
      } else {
        sessions.push_back(held.session);
      }
    }
    for (const std::string& lease_id : given_up) {
      changed = true;
      log::Warning("client did not come back", {{"lease", lease_id}});
      ended.push_back(TakeSessionLocked(lease_id, absl::OkStatus()));
    }
    for (const auto& [key, connection] : connections_) {
      if (connection->lease_id.empty() && !connection->close_requested &&
          now - connection->since() > options_.hello_timeout) {
        absl::Status silent =
            MakeError(absl::StatusCode::kDeadlineExceeded, "PROTOCOL_VIOLATION",
                      "no hello in time");
        log::Warning("client refused", {{"status", silent}});
        RequestCloseLocked(key, std::move(silent));
      }
    }
  }
  for (const std::shared_ptr<Session>& session : ended) {
    if (session != nullptr) session->Drop();
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    session->CheckDeadlines();
  }
  offers_.CheckDeadlines(
      [this](const std::string& session_id) { return ActivityOf(session_id); });
  // Kept for reuse, but never most of the device: inputs that differ in every
  // run would fill it.
  const uint64_t idle = contents_.stats().idle_bytes;
  const uint64_t most = device_->memory_bytes() / 2;
  const uint64_t excess = std::max(idle > most ? idle - most : 0,
                                   ledger_.usage().Above(kHighPressure));
  if (excess > 0 && idle > 0) {
    contents_.EvictIdle(excess);
    changed = true;
  }
  const uint64_t spare = ledger_.usage().Above(kCriticalPressure);
  if (spare > 0) device_->ReleaseSpareMemory(spare);
  if (changed) NotifyChange();
}

std::shared_ptr<Session> WorkerCore::EndLeaseLocked(Lease lease,
                                                    const absl::Status& why) {
  const std::string& lease_id = lease.claims.lease_id();
  std::shared_ptr<Session> session;
  if (sessions_.contains(lease_id)) session = TakeSessionLocked(lease_id, why);
  ended_leases_.push_back(
      {lease_id, std::move(lease.issue), std::move(lease.meter)});
  if (ended_leases_.size() > options_.max_ended_leases) {
    ++unbilled_leases_;
    log::Warning("what a lease used is not billed: too many wait to be settled",
                 {{"lease", ended_leases_.front().lease_id},
                  {"unbilled", unbilled_leases_}});
    ended_leases_.pop_front();
  }
  return session;
}

void WorkerCore::Learn(const v1::DesiredState& desired) {
  for (const v1::LeaseKey& key : desired.lease_keys()) {
    const absl::Status learnt = verifier_.Learn(key);
    if (!learnt.ok()) {
      log::Error("lease key refused",
                 {{"key", key.key_id()}, {"status", learnt}});
    }
  }
  for (const std::string& key_id : desired.retired_lease_key_ids()) {
    verifier_.Retire(key_id);
  }
}

absl::StatusOr<v1::LeaseClaims> WorkerCore::ClaimsOf(
    const v1::SignedLease& issue) const {
  v1::LeaseClaims claims = UncheckedClaims(issue);
  {
    MutexLock lock(&mu_);
    // Nearly always: renewals every heartbeat, and clients that resume with an
    // issue whose key may be retired by now.
    if (leases_.Has(issue, claims)) return claims;
  }
  return verifier_.Verify(issue);
}

uint64_t WorkerCore::ApplyLease(const Lease& lease) {
  const auto account = accounts_.find(lease.claims.tenant());
  if (lease.claims.has_tenant_limits() && account != accounts_.end()) {
    if (const auto shared = account->second.lock()) {
      shared->SetLimits(lease.claims.tenant_limits());
    }
  }
  const auto held = sessions_.find(lease.claims.lease_id());
  if (held == sessions_.end()) return 0;
  held->second.session->SetMemoryLimits(
      MemoryLimits::Of(lease.claims.limits()));
  held->second.session->SetRunDeadline(RunDeadlineOf(lease.claims));
  {
    MutexLock lock(&queue_mu_);
    queue_.SetWeight(lease.claims.tenant(), WeightOf(lease.claims));
    const v1::PriorityClass declared = lease.claims.urgency().priority_class();
    const auto queued = queued_.find(held->second.queue_key);
    if (queued != queued_.end()) queued->second.declared = declared;
    queue_.SetPriority(held->second.queue_key,
                       PriorityOf(declared, held->second.session->phase()));
  }
  const bool goes_on = lease.meter->waiting() && lease.meter->HasCredit();
  if (goes_on) held->second.session->NoteCredit(clock_->Monotonic());
  return goes_on ? held->second.queue_key : 0;
}

void WorkerCore::NoteWaiting(const Session& session, bool waits) {
  log::Info(waits ? "session waits for credit" : "session has credit again",
            {{"session", log::ShortId(session.session_id())},
             {"tenant", session.tenant()}});
  NotifyChange();
}

void WorkerCore::Apply(const v1::DesiredState& desired) {
  std::vector<absl::Status> refused;
  std::vector<std::shared_ptr<Session>> ended;
  std::vector<uint64_t> runnable;
  bool changed = false;
  pulls_.Learn(desired);
  Learn(desired);
  contents_.SetSharing(
      {desired.sharing_tenants().begin(), desired.sharing_tenants().end()});
  {
    MutexLock lock(&queue_mu_);
    batching_tenants_ = {desired.batching_tenants().begin(),
                         desired.batching_tenants().end()};
  }
  for (const v1::GraphPhase& known : desired.graph_phases()) {
    graphs_.SetKind(known.fingerprint(), KnownPhase(known.phase()),
                    known.cache_slots(),
                    std::vector<std::string>(known.tenants().begin(),
                                             known.tenants().end()));
  }
  std::vector<absl::StatusOr<v1::LeaseClaims>> claims;
  for (const v1::SignedLease& issue : desired.leases()) {
    claims.push_back(ClaimsOf(issue));
  }
  const absl::flat_hash_set<absl::string_view> settled(
      desired.settled_lease_ids().begin(), desired.settled_lease_ids().end());
  {
    MutexLock lock(&mu_);
    const LeaseTime now = Now();
    for (int i = 0; i < desired.leases_size(); ++i) {
      if (!claims[i].ok()) {
        refused.push_back(claims[i].status());
        continue;
      }
      const std::string& lease_id = claims[i]->lease_id();
      const bool known = leases_.Find(lease_id) != nullptr;
      absl::Status renewed = leases_.Renew(desired.leases(i), *claims[i], now);
      if (!renewed.ok()) {
        refused.push_back(std::move(renewed));
        continue;
      }
      changed |= !known;
      const uint64_t queue_key = ApplyLease(*leases_.Find(lease_id));
      if (queue_key != 0) runnable.push_back(queue_key);
    }
    const auto drop = [&](std::vector<Lease> leases, absl::string_view why) {
      for (Lease& lease : leases) {
        changed = true;
        ended.push_back(EndLeaseLocked(
            std::move(lease),
            MakeError(absl::StatusCode::kAborted, "SESSION_DROPPED", why)));
      }
    };
    for (const std::string& session_id : desired.drop_session_ids()) {
      drop(leases_.TakeSession(session_id),
           "the coordinator ended the session");
    }
    for (const std::string& lease_id : desired.drop_lease_ids()) {
      drop(leases_.TakeLease(lease_id), "the coordinator ended the lease");
    }
    runs_questions_.assign(desired.runs_questions().begin(),
                           desired.runs_questions().end());
    if (!settled.empty()) {
      std::erase_if(ended_leases_, [&](const EndedLease& lease) {
        return settled.contains(lease.lease_id);
      });
    }
    housekeeping_.Signal();
  }
  for (const uint64_t queue_key : runnable) MakeRunnable(queue_key);
  for (const std::shared_ptr<Session>& session : ended) {
    if (session != nullptr) session->Drop();
  }
  for (const absl::Status& status : refused) {
    log::Error("lease refused", {{"status", status}});
  }
  if (changed) NotifyChange();
}

uint64_t WorkerCore::CacheBytes() const {
  uint64_t bytes = 0;
  MutexLock lock(&mu_);
  for (const auto& [lease_id, held] : sessions_) {
    bytes += held.session->cache_bytes();
  }
  return bytes;
}

void WorkerCore::ReportLeases(v1::WorkerState* state) const {
  uint32_t queued_runs = 0;
  const absl::Duration now = clock_->Monotonic();
  for (const auto& [lease_id, lease] : leases_.all()) {
    v1::HeldSession* const held = state->add_sessions();
    *held->mutable_lease() = lease.issue;
    *held->mutable_lease_use() = lease.meter->use();
    held->set_out_of_credit(lease.meter->waiting());
    v1::GivenWay given_way;
    if (lease.meter->given_way()->Describe(now, &given_way)) {
      *held->mutable_given_way() = std::move(given_way);
    }
    const auto found = sessions_.find(lease_id);
    if (found == sessions_.end()) continue;
    const std::shared_ptr<Session>& session = found->second.session;
    held->set_storage_count(session->storage_count());
    held->set_storage_bytes(session->storage_bytes());
    held->set_attached(found->second.connection != 0);
    *held->mutable_use() = session->use();
    if (auto wait = WaitOf(found->second, now); wait.has_value()) {
      *held->mutable_wait() = *std::move(wait);
    }
    queued_runs += session->queued_runs();
  }
  state->set_queued_runs(queued_runs);
  for (const EndedLease& lease : ended_leases_) {
    v1::EndedLease* const ended = state->add_ended_leases();
    *ended->mutable_lease() = lease.issue;
    // Looked at before the use.
    ended->set_measuring(lease.measuring());
    *ended->mutable_use() = lease.meter->use();
  }
}

v1::WorkerState WorkerCore::Snapshot() const {
  v1::WorkerState state;
  state.set_worker_id(options_.worker_id);
  state.set_incarnation(incarnation_);
  state.set_protocol_version(kProtocolVersion);
  state.set_device(device_->name());
  const Ledger::Usage usage = ledger_.usage();
  state.set_memory_bytes(usage.limit);
  // Idle contents and spare memory give way to whoever asks.
  const ContentCache::Stats contents = contents_.stats();
  const uint64_t spare =
      usage.by_class[static_cast<size_t>(MemoryClass::kSpare)];
  state.set_free_bytes(std::min(
      usage.limit, usage.limit - usage.used + spare + contents.idle_bytes));
  ReportMemory(usage, contents.idle_bytes, CacheBytes(),
               state.mutable_memory());
  v1::CacheUse* const content_cache = state.mutable_content_cache();
  ReportCache(contents, content_cache);
  content_cache->set_entries(contents.entries);
  content_cache->set_size_bytes(contents.bytes);
  std::vector<ContentCache::Content> held = contents_.List();
  if (options_.store != nullptr) {
    ReportDisk(options_.store->stats(), state.mutable_disk());
    // Nobody needs to send what is on disk, either.
    for (ContentCache::Content& content : options_.store->List()) {
      if (held.size() >= kMaxReportedContents) break;
      if (contents_.Peek(content.tenant, content.hash, content.size_bytes) ==
          nullptr) {
        held.push_back(std::move(content));
      }
    }
  }
  for (ContentCache::Content& content : held) {
    v1::HeldContent* const added = state.add_contents();
    added->set_tenant(std::move(content.tenant));
    added->set_hash_high(content.hash.high);
    added->set_hash_low(content.hash.low);
    added->set_size_bytes(content.size_bytes);
  }
  state.set_client_bytes_per_second(uploads_.BytesPerSecond());
  for (v1::PeerLink& link : links_.Known()) {
    *state.add_links() = std::move(link);
  }
  const GraphCache::Stats plans = graphs_.stats();
  ReportCache(plans, state.mutable_plan_cache());
  state.mutable_plan_cache()->set_entries(plans.plans);
  state.mutable_plan_cache()->set_size_bytes(plans.bytes);
  ReportExecuted(counters_, state.mutable_executed());
  const PhaseTimes busy = metrics_.busy.Read();
  *state.mutable_executed()->mutable_device_time() =
      ToProtoDuration(busy.total());
  busy.Describe(state.mutable_executed()->mutable_phases());
  // Behind that, which it is not to be less than.
  *state.mutable_executed()->mutable_executor_time() =
      ToProtoDuration(ExecutorTime());
  for (const std::shared_ptr<const Plan>& plan : graphs_.List()) {
    v1::HeldGraph* held = state.add_graphs();
    held->set_fingerprint(plan->fingerprint());
    held->set_run_count(plan->runs());
    held->set_content_bytes(plan->content_bytes());
    *held->mutable_device_time() = ToProtoDuration(plan->device_time());
  }
  MutexLock lock(&mu_);
  ReportLeases(&state);
  AnswerRuns(&state);
  return state;
}

}  // namespace djinn::worker
