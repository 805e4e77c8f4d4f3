// What operators' monitoring scrapes.
#include <algorithm>
#include <atomic>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/lease/phase_times.h"
#include "common/lease/priority_class.h"
#include "gpu_worker/core/connection.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {
namespace {

template <typename Stats>
void CollectCache(const char* cache, const Stats& stats, Exposition* out) {
  const auto requests = [&](const char* result, uint64_t count) {
    out->Counter("djinn_cache_requests_total", "Look-ups in a cache.",
                 static_cast<double>(count),
                 {{"cache", cache}, {"result", result}});
  };
  requests("hit", stats.hits);
  requests("miss", stats.misses);
  out->Counter("djinn_cache_evictions_total",
               "Entries that a cache evicted to make room.",
               static_cast<double>(stats.evictions), {{"cache", cache}});
}

void CollectExecution(const ExecutionCounters& counters, Exposition* out) {
  out->Counter("djinn_worker_runs_total", "Runs carried out.",
               static_cast<double>(counters.runs));
  const auto nodes = [&](const char* result, uint64_t count) {
    out->Counter("djinn_worker_nodes_total", "Operator calls, by outcome.",
                 static_cast<double>(count), {{"result", result}});
  };
  nodes("ok", counters.nodes - counters.failed_nodes - counters.skipped_nodes);
  nodes("failed", counters.failed_nodes);
  nodes("skipped", counters.skipped_nodes);
  out->Counter("djinn_recomputed_nodes_total",
               "Operator calls that made again what another worker had made.",
               static_cast<double>(counters.recomputed_nodes));
  out->Counter("djinn_worker_alias_copies_total",
               "Results copied because they shared an operand's memory.",
               static_cast<double>(counters.alias_copies));
  out->Counter("djinn_worker_write_copies_total",
               "Shared buffers copied because they were to be written.",
               static_cast<double>(counters.write_copies));
}

}  // namespace

void WorkerCore::CollectDisk(Exposition* out) const {
  const ContentStore::Stats disk = options_.store->stats();
  CollectCache("content_disk", disk, out);
  out->Gauge("djinn_cache_bytes", "What a cache holds; plans are estimated.",
             static_cast<double>(disk.bytes),
             {{"worker", options_.worker_id},
              {"cache", "content_disk"},
              {"residency", "disk"}});
  const auto failures = [&](const char* kind, uint64_t count) {
    out->Counter("djinn_content_disk_failures_total",
                 "Contents not kept on disk, and files found broken.",
                 static_cast<double>(count), {{"kind", kind}});
  };
  failures("write", disk.failed_writes);
  failures("corrupt", disk.corrupt_files);
  out->Gauge("djinn_content_disk_writable",
             "Whether the last content was kept on disk.",
             disk.failure.empty() ? 1 : 0);
}

void WorkerCore::CollectMemory(Exposition* out) const {
  const std::string& worker = options_.worker_id;
  const ContentCache::Stats contents = contents_.stats();
  const GraphCache::Stats plans = graphs_.stats();
  CollectCache("content", contents, out);
  CollectCache("plan", plans, out);
  if (options_.store != nullptr) CollectDisk(out);
  const ContentProofs::Stats proofs = proofs_.stats();
  const auto challenges = [&](const char* result, uint64_t count) {
    out->Counter("djinn_content_challenges_total",
                 "Proofs of having another tenant's bytes, asked for.",
                 static_cast<double>(count), {{"result", result}});
  };
  challenges("proven", proofs.proven);
  challenges("unproven", proofs.issued - proofs.proven);
  challenges("not_asked", proofs.refused);
  const Ledger::Usage usage = ledger_.usage();
  const auto bytes = [&](MemoryClass memory_class) {
    return static_cast<double>(
        usage.by_class[static_cast<size_t>(memory_class)]);
  };
  const auto cache_bytes = [&](const char* cache, const char* residency,
                               double value) {
    out->Gauge(
        "djinn_cache_bytes", "What a cache holds; plans are estimated.", value,
        {{"worker", worker}, {"cache", cache}, {"residency", residency}});
  };
  const double content = bytes(MemoryClass::kContents);
  const auto idle = static_cast<double>(contents.idle_bytes);
  cache_bytes("content", "idle", idle);
  cache_bytes("content", "shared", content - idle);
  cache_bytes("plan", "host", static_cast<double>(plans.bytes));
  const auto memory = [&](const char* residency, double value) {
    out->Gauge("djinn_worker_device_memory_bytes",
               "The device's memory by what it is used for.", value,
               {{"worker", worker},
                {"device_uuid", device_->name()},
                {"residency", residency}});
  };
  const double storages = bytes(MemoryClass::kStorages);
  // What storages share counts for each of them.
  const double caches = std::min(storages, static_cast<double>(CacheBytes()));
  memory("storage", storages - caches);
  memory("kv_cache", caches);
  memory("content", content);
  memory("transfer", bytes(MemoryClass::kTransfers));
  memory("spare", bytes(MemoryClass::kSpare));
  memory("free", static_cast<double>(usage.limit - usage.used));
  std::map<std::string, uint64_t> by_tenant;
  for (const auto& [tenant, used] : ledger_.by_tenant()) {
    by_tenant[metrics_.tenants.For(tenant)] += used;
  }
  for (const auto& [tenant, used] : by_tenant) {
    out->Gauge("djinn_worker_tenant_memory_bytes",
               "The device's memory that is used for a tenant.",
               static_cast<double>(used),
               {{"worker", worker}, {"tenant", tenant}});
  }
  out->Gauge("djinn_worker_memory_pressure",
             "How full the device is: 1 from 80 % on, 2 from 95 %.",
             static_cast<double>(usage.pressure()), {{"worker", worker}});
}

void WorkerCore::CollectWaiting(Exposition* out) const {
  const absl::Duration now = clock_->Monotonic();
  std::map<std::string, absl::Duration> longest;
  {
    MutexLock lock(&queue_mu_);
    for (const auto& [key, queued] : queued_) {
      absl::Duration& age =
          longest[metrics_.tenants.For(queued.session->tenant())];
      age = std::max(age, now - std::min(queued.waits_since, now));
    }
  }
  for (const auto& [tenant, age] : longest) {
    out->Gauge("djinn_oldest_pending_age_seconds",
               "How long the tenant's work has waited that waits longest.",
               absl::ToDoubleSeconds(age), {{"tenant", tenant}});
  }
}

void WorkerCore::Collect(Exposition* out) const {
  CollectMemory(out);
  CollectExecution(counters_, out);
  metrics_.rejections.Collect(out);
  metrics_.recoveries.Collect(out);
  out->Histogram("djinn_recovery_duration_seconds",
                 "From a peer's going away until it was taken up again.",
                 metrics_.resumed_streams, {{"kind", "stream_resumed"}});
  metrics_.deadlines.Collect(out);
  metrics_.requests.Collect(out);
  out->Histogram("djinn_request_duration_seconds",
                 "From a run's arrival to its end.", metrics_.request_duration);
  out->Histogram("djinn_time_to_first_result_seconds",
                 "From a prompt's arrival to the first value read behind it.",
                 metrics_.first_result);
  out->Histogram("djinn_inter_result_seconds",
                 "From one value that a program which generates reads to the "
                 "next one.",
                 metrics_.next_result);
  out->Histogram("djinn_start_prediction_error_seconds",
                 "Between when a run was expected to begin, where that was "
                 "known, and when it did.",
                 metrics_.start_prediction_error);
  out->Histogram("djinn_state_idle_before_evict_seconds",
                 "How long ago contents that gave way had been used last.",
                 contents_.idle_before_evict());
  CollectWaiting(out);
  preemption_.Collect(out);
  for (const auto& [event, count] : device_->Counts()) {
    out->Counter("djinn_worker_device_events_total",
                 "What the device counts by itself.",
                 static_cast<double>(count), {{"event", event}});
  }
  out->Histogram("djinn_queue_wait_seconds",
                 "From a session's having work to its turn.",
                 metrics_.queue_wait);
  out->Histogram("djinn_worker_step_seconds",
                 "What one turn of a session on the device took.",
                 metrics_.steps);
  out->Histogram("djinn_batch_runs",
                 "Runs whose rows were multiplied by a weight together.",
                 metrics_.batch_runs);
  out->Histogram("djinn_batch_rows", "Their rows.", metrics_.batch_rows);
  out->Histogram("djinn_batch_tenants", "Their tenants.",
                 metrics_.batch_tenants);
  out->Histogram("djinn_batch_wait_seconds",
                 "How long a turn was put off for others to share it.",
                 metrics_.batch_waits);
  out->Histogram("djinn_worker_processor_move_seconds",
                 "How long the thread that carries out messages waited to get "
                 "from a crowded processor to another.",
                 metrics_.processor_moves);
  const PhaseTimes busy = metrics_.busy.Read();
  for (int i = 0; i < PhaseTimes::kPhases; ++i) {
    const auto phase = static_cast<v1::Phase>(i);
    const absl::Duration time = busy.of(phase);
    if (time == absl::ZeroDuration() && phase != v1::PHASE_UNSPECIFIED) {
      continue;
    }
    out->Counter("djinn_worker_device_busy_seconds_total",
                 "Time in which the device served sessions.",
                 absl::ToDoubleSeconds(time), {{"phase", PhaseName(phase)}});
  }
  const auto seconds = [](const std::atomic<uint64_t>& nanoseconds) {
    return static_cast<double>(nanoseconds.load(std::memory_order_relaxed)) *
           1e-9;
  };
  out->Counter("djinn_worker_proof_seconds_total",
               "Time in which contents were hashed for those who prove that "
               "they have them.",
               seconds(metrics_.proofs));
  out->Counter("djinn_worker_housekeeping_seconds_total",
               "Time in which the thread that carries out messages was at "
               "work for nobody.",
               seconds(metrics_.housekeeping));
  out->Counter("djinn_worker_executor_seconds_total",
               "Time in which the thread that carries out messages was at "
               "work, from one wait to the next.",
               absl::ToDoubleSeconds(ExecutorTime()));
  const auto transfer = [&](const char* path, const char* kind,
                            Traffic::Kind which) {
    out->Counter("djinn_transfer_bytes_total", "Bytes that moved.",
                 static_cast<double>(metrics_.traffic.bytes(which)),
                 {{"path", path}, {"kind", kind}});
  };
  transfer("client_to_worker", "message", Traffic::kMessagesIn);
  transfer("client_to_worker", "bulk", Traffic::kBulkIn);
  transfer("worker_to_client", "message", Traffic::kMessagesOut);
  transfer("worker_to_client", "bulk", Traffic::kBulkOut);
  transfer("worker_to_worker", "migration", Traffic::kMigratedIn);
  out->Gauge("djinn_worker_offers", "Values that wait for another worker.",
             static_cast<double>(offers_.offers()));
  MutexLock lock(&mu_);
  out->Gauge("djinn_worker_connections", "Streams of clients.",
             static_cast<double>(connections_.size()));
  out->Counter("djinn_worker_unbilled_leases_total",
               "Ended leases whose use was forgotten before the coordinator "
               "had it billed: too many waited.",
               static_cast<double>(unbilled_leases_));
  for (const auto& [lease_id, held] : sessions_) {
    const std::string tenant = metrics_.tenants.For(held.session->tenant());
    out->Gauge("djinn_worker_sessions", "Sessions with state here.", 1,
               {{"tenant", tenant},
                {"state", held.connection != 0 ? "attached" : "detached"}});
    const v1::SessionUse use = held.session->use();
    out->Gauge("djinn_worker_models", "Models that are registered.",
               use.model_count(), {{"tenant", tenant}});
    out->Gauge("djinn_worker_model_bytes",
               "What they had when they were registered.",
               static_cast<double>(use.model_bytes()), {{"tenant", tenant}});
    out->Gauge(
        "djinn_pending_runs", "Runs received and not completed.",
        held.session->queued_runs(),
        {{"tenant", tenant},
         {"priority_class",
          PriorityClassName(
              leases_.Find(lease_id)->claims.urgency().priority_class())},
         {"reason", leases_.Find(lease_id)->meter->waiting() ? "out_of_credit"
                                                             : "queued"}});
  }
}

}  // namespace djinn::worker
