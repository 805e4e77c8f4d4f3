// Leases, deadlines, and what the coordinator hears.
#include <algorithm>

#include "common/error.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/core/connection.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {
namespace {

// A coordinator that names no duration gets a short one.
constexpr absl::Duration kDefaultValidity = absl::Seconds(30);

void ReportMemory(const Ledger::Usage& usage, uint64_t idle_content_bytes,
                  v1::MemoryUse* memory) {
  const auto bytes = [&](MemoryClass memory_class) {
    return usage.by_class[static_cast<size_t>(memory_class)];
  };
  memory->set_storage_bytes(bytes(MemoryClass::kStorages));
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

void ReportExecuted(const ExecutionCounters& counters,
                    v1::ExecutionUse* executed) {
  executed->set_runs(counters.runs);
  executed->set_nodes(counters.nodes);
  executed->set_failed_nodes(counters.failed_nodes);
  executed->set_skipped_nodes(counters.skipped_nodes);
}

}  // namespace

void WorkerCore::ExpireAndCheck() {
  const absl::Duration now = clock_->Monotonic();
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<std::shared_ptr<Session>> ended;
  bool changed = false;
  {
    MutexLock lock(&mu_);
    for (const std::string& lease_id : leases_.TakeExpired(now)) {
      changed = true;
      log::Warning("lease expired", {{"lease", lease_id}});
      if (!sessions_.contains(lease_id)) continue;
      ended.push_back(TakeSessionLocked(
          lease_id,
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
  for (const std::shared_ptr<Session>& session : ended) session->Drop();
  for (const std::shared_ptr<Session>& session : sessions) {
    session->CheckDeadlines();
  }
  offers_.CheckDeadlines(
      [this](const std::string& session_id) { return ActivityOf(session_id); });
  // Kept for reuse, but never most of the device: inputs that differ in every
  // run would fill it.
  const uint64_t idle = contents_.stats().idle_bytes;
  const uint64_t most = device_->memory_bytes() / 2;
  if (idle > most) {
    contents_.EvictIdle(idle - most);
    changed = true;
  }
  if (changed) NotifyChange();
}

void WorkerCore::Apply(const v1::DesiredState& desired) {
  absl::Duration validity =
      desired.has_lease_valid_for()
          ? absl::Seconds(desired.lease_valid_for().seconds()) +
                absl::Nanoseconds(desired.lease_valid_for().nanos())
          : kDefaultValidity;
  const absl::Duration expires = clock_->Monotonic() + validity;
  std::vector<absl::Status> refused;
  std::vector<std::shared_ptr<Session>> ended;
  bool changed = false;
  pulls_.Learn(desired);
  {
    MutexLock lock(&mu_);
    for (const v1::LeaseRecord& record : desired.leases()) {
      changed |= !leases_.Contains(record.lease_id());
      absl::Status granted = leases_.Grant(record, expires);
      if (!granted.ok()) refused.push_back(std::move(granted));
    }
    for (const std::string& session_id : desired.drop_session_ids()) {
      for (const std::string& lease_id : leases_.TakeSession(session_id)) {
        changed = true;
        if (!sessions_.contains(lease_id)) continue;
        ended.push_back(TakeSessionLocked(
            lease_id, MakeError(absl::StatusCode::kAborted, "SESSION_DROPPED",
                                "the coordinator ended the session")));
      }
    }
    housekeeping_.Signal();
  }
  for (const std::shared_ptr<Session>& session : ended) session->Drop();
  for (const absl::Status& status : refused) {
    log::Error("lease refused", {{"status", status}});
  }
  if (changed) NotifyChange();
}

v1::WorkerState WorkerCore::Snapshot() const {
  v1::WorkerState state;
  state.set_worker_id(options_.worker_id);
  state.set_incarnation(incarnation_);
  *state.mutable_protocol() = OwnProtocolWindow();
  state.set_device(device_->name());
  const Ledger::Usage usage = ledger_.usage();
  state.set_memory_bytes(usage.limit);
  // Idle contents and spare memory give way to whoever asks.
  const ContentCache::Stats contents = contents_.stats();
  const uint64_t spare =
      usage.by_class[static_cast<size_t>(MemoryClass::kSpare)];
  state.set_free_bytes(std::min(
      usage.limit, usage.limit - usage.used + spare + contents.idle_bytes));
  ReportMemory(usage, contents.idle_bytes, state.mutable_memory());
  v1::CacheUse* const content_cache = state.mutable_content_cache();
  ReportCache(contents, content_cache);
  for (ContentCache::Content& content : contents_.List()) {
    v1::HeldContent* held = state.add_contents();
    held->set_tenant(std::move(content.tenant));
    held->set_hash_high(content.hash.high);
    held->set_hash_low(content.hash.low);
    held->set_size_bytes(content.size_bytes);
    content_cache->set_entries(content_cache->entries() + 1);
    content_cache->set_size_bytes(content_cache->size_bytes() +
                                  content.size_bytes);
  }
  const GraphCache::Stats plans = graphs_.stats();
  ReportCache(plans, state.mutable_plan_cache());
  state.mutable_plan_cache()->set_entries(plans.plans);
  state.mutable_plan_cache()->set_size_bytes(plans.bytes);
  ReportExecuted(counters_, state.mutable_executed());
  for (const std::shared_ptr<const Plan>& plan : graphs_.List()) {
    v1::HeldGraph* held = state.add_graphs();
    held->set_fingerprint(plan->fingerprint());
    held->set_run_count(plan->runs());
  }
  uint32_t queued_runs = 0;
  {
    MutexLock lock(&mu_);
    for (v1::LeaseRecord& lease : leases_.List()) {
      v1::HeldSession* held = state.add_sessions();
      const auto found = sessions_.find(lease.lease_id());
      *held->mutable_lease() = std::move(lease);
      if (found == sessions_.end()) continue;
      const std::shared_ptr<Session>& session = found->second.session;
      held->set_storage_count(session->storage_count());
      held->set_storage_bytes(session->storage_bytes());
      held->set_attached(found->second.connection != 0);
      *held->mutable_use() = session->use();
      queued_runs += session->queued_runs();
    }
  }
  state.set_queued_runs(queued_runs);
  return state;
}

}  // namespace djinn::worker
