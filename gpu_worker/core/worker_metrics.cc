// Collects the worker's metrics.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/lease/priority_class.h"
#include "gpu_worker/core/worker_report.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/disk_report.h"

namespace djinn::worker {
namespace {

void CollectExecution(const ExecutionCounters& counters, Exposition* out) {
  out->Counter("djinn_worker_runs_total", "Runs that the worker executed.",
               static_cast<double>(counters.runs));
  const auto nodes = [&](const char* result, uint64_t count) {
    out->Counter("djinn_worker_nodes_total", "Operator calls, by outcome.",
                 static_cast<double>(count), {{"result", result}});
  };
  nodes("ok", counters.nodes - counters.failed_nodes - counters.skipped_nodes);
  nodes("failed", counters.failed_nodes);
  nodes("skipped", counters.skipped_nodes);
  out->Counter(
      "djinn_recomputed_nodes_total",
      "Operator calls that rematerialized what another worker had made.",
      static_cast<double>(counters.recomputed_nodes));
  out->Counter("djinn_worker_retried_nodes_total",
               "Operator calls repeated because they had lacked memory.",
               static_cast<double>(counters.retried_nodes));
  out->Counter("djinn_worker_alias_copies_total",
               "Results copied because they shared an operand's memory.",
               static_cast<double>(counters.alias_copies));
  out->Counter("djinn_worker_write_copies_total",
               "Shared buffers copied because they were to be written.",
               static_cast<double>(counters.write_copies));
}

}  // namespace

void WorkerReport::CollectMemory(Exposition* out) const {
  const std::string& worker = environment_.worker_id;
  const ContentCache::Stats contents = environment_.contents->stats();
  const GraphCache::Stats plans = environment_.graphs->stats();
  CollectCache("content", contents.hits, contents.misses, contents.evictions,
               out);
  CollectCache("plan", plans.hits, plans.misses, plans.evictions, out);
  if (environment_.store != nullptr) {
    const auto disk = environment_.store->stats();
    if (disk.has_value()) {
      CollectDiskCache(*disk, worker, out);
      CollectDisk(*disk, out);
    }
  }
  const ContentProofs::Stats proofs = environment_.proofs->stats();
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
        "djinn_cache_bytes", "Bytes in a cache; an estimate for plans.", value,
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
                {"device_uuid", device_.name()},
                {"residency", residency}});
  };
  const double storages = bytes(MemoryClass::kStorages);
  // A content that several storages share counts once for each of them.
  const double caches = std::min(
      storages, static_cast<double>(CacheBytes(parts_.streams.Sessions())));
  memory("storage", storages - caches);
  memory("kv_cache", caches);
  memory("content", content);
  memory("transfer", bytes(MemoryClass::kTransfers));
  memory("spare", bytes(MemoryClass::kSpare));
  memory("free", static_cast<double>(usage.limit - usage.used));
  Exposition::Values tenant_memory = out->Gauges(
      "djinn_worker_tenant_memory_bytes",
      "The device's memory that is used for a tenant.", {"worker", "tenant"});
  std::map<std::string, uint64_t> by_tenant;
  for (const auto& [tenant, used] : ledger_.by_tenant()) {
    by_tenant[environment_.metrics->tenants.For(tenant)] += used;
  }
  for (const auto& [tenant, used] : by_tenant) {
    tenant_memory.Add(static_cast<double>(used), {worker, tenant});
  }
  out->Gauge(
      "djinn_worker_memory_pressure",
      "Memory use of the device: 1 from 80 % on, 2 from 95 %, otherwise 0.",
      static_cast<double>(usage.pressure()), {{"worker", worker}});
}

void WorkerReport::CollectSessions(Exposition* out) const {
  Exposition::Values oldest =
      out->Gauges("djinn_oldest_pending_age_seconds",
                  "Age of the tenant's oldest pending work.", {"tenant"});
  for (const auto& [tenant, age] :
       parts_.executor.queue().OldestWaits(&environment_.metrics->tenants)) {
    oldest.Add(absl::ToDoubleSeconds(age), {tenant});
  }
  out->Counter("djinn_worker_unbilled_leases_total",
               "Ended leases whose use was forgotten before the coordinator "
               "had it billed: too many waited.",
               static_cast<double>(parts_.leases.unbilled()));
  Exposition::Values sessions =
      out->Gauges("djinn_worker_sessions", "Sessions with state here.",
                  {"tenant", "state"});
  Exposition::Values models = out->Gauges(
      "djinn_worker_models", "Models that are registered.", {"tenant"});
  Exposition::Values model_bytes = out->Gauges(
      "djinn_worker_model_bytes",
      "Bytes that registered models had at their registration.", {"tenant"});
  Exposition::Values refused_models =
      out->Gauges("djinn_worker_refused_models",
                  "Registrations of the sessions here that their tenants' "
                  "budgets refused.",
                  {"tenant"});
  Exposition::Values kv_sessions =
      out->Gauges("djinn_worker_kv_sessions",
                  "Sessions that hold caches of keys and values.", {"tenant"});
  Exposition::Values kv_bytes =
      out->Gauges("djinn_worker_kv_bytes",
                  "Bytes in caches of keys and values.", {"tenant"});
  Exposition::Values pending =
      out->Gauges("djinn_pending_runs", "Runs received and not completed.",
                  {"tenant", "priority_class", "reason"});
  for (const auto& [lease_id, entry] : parts_.streams.Sessions()) {
    const std::string tenant =
        environment_.metrics->tenants.For(entry.session->who().tenant);
    sessions.Add(1, {tenant, entry.attached ? "attached" : "detached"});
    const v1::SessionUse use = entry.session->use();
    models.Add(use.model_count(), {tenant});
    model_bytes.Add(static_cast<double>(use.model_bytes()), {tenant});
    refused_models.Add(static_cast<double>(use.refused_models()), {tenant});
    const uint64_t caches = use.caches().size_bytes();
    kv_sessions.Add(caches > 0, {tenant});
    kv_bytes.Add(static_cast<double>(caches), {tenant});
    const std::optional<Lease> lease = parts_.leases.Find(lease_id);
    if (!lease.has_value()) continue;
    pending.Add(
        entry.session->next().queued_runs(),
        {tenant, PriorityClassName(lease->claims.urgency().priority_class()),
         lease->meter->waiting() ? "out_of_credit" : "queued"});
  }
}

void WorkerReport::Collect(Exposition* out) const {
  CollectMemory(out);
  CollectExecution(*environment_.counters, out);
  environment_.metrics->Collect(out);
  parts_.executor.Collect(out);
  parts_.streams.Collect(out);
  CollectSessions(out);
  out->Histogram("djinn_state_idle_before_evict_seconds",
                 "Time between the last use of a content and its eviction.",
                 environment_.contents->idle_before_evict());
  // Declared before there are any (Worker::Declare()).
  Exposition::Values events =
      out->Counters("djinn_worker_device_events_total",
                    "Events that the device counts.", {"event"});
  for (const auto& [event, count] : device_.Counts()) {
    events.Add(static_cast<double>(count), {event});
  }
  const auto transfer = [&](const char* path, const char* kind,
                            Traffic::Kind which) {
    out->Counter("djinn_transfer_bytes_total", "Bytes that moved.",
                 static_cast<double>(parts_.traffic.bytes(which)),
                 {{"path", path}, {"kind", kind}});
  };
  transfer("client_to_worker", "message", Traffic::kMessagesIn);
  transfer("client_to_worker", "bulk", Traffic::kBulkIn);
  transfer("worker_to_client", "message", Traffic::kMessagesOut);
  transfer("worker_to_client", "bulk", Traffic::kBulkOut);
  transfer("worker_to_worker", "migration", Traffic::kMigratedIn);
  out->Gauge("djinn_worker_offers", "Values that wait for another worker.",
             static_cast<double>(environment_.offers->offers()));
}

}  // namespace djinn::worker
