#include "coordinator/admin/scrape.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/lease/phase_times.h"
#include "common/lease/priority_class.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/quota.pb.h"
#include "djinn/v1/types.pb.h"

namespace djinn::coordinator::scrape {
namespace {

constexpr char kNominal[] = "djinn_tenant_quota_nominal";
constexpr char kNominalHelp[] =
    "Quota that the configuration grants; resources named worker_* count at "
    "each worker.";
constexpr char kUsage[] = "djinn_tenant_usage";
constexpr char kUsageHelp[] =
    "Quota that the tenant uses now, over all workers.";

// Returns the label of the gate that operators see.
std::string PendingReason(const PendingLease& pending) {
  return pending.lease_id.empty()
             ? absl::AsciiStrToLower(ErrorReason(pending.obstacle))
             : "worker_acknowledgement";
}

void CollectWorker(const Worker& worker,
                   const UnreachedWorkers::Summary& unreached,
                   absl::Duration now, Exposition* out) {
  for (const auto state : {v1::WorkerInfo::ACTIVE, v1::WorkerInfo::LOST}) {
    out->Gauge(
        "djinn_worker_state", "1 for the state of the worker.",
        worker.state == state,
        {{"worker", worker.id},
         {"state", absl::AsciiStrToLower(v1::WorkerInfo::State_Name(state))}});
  }
  out->Gauge(
      "djinn_worker_report_age_seconds", "Time since the worker's last report.",
      absl::ToDoubleSeconds(now - worker.last_report), {{"worker", worker.id}});
  out->Gauge(
      "djinn_worker_unreached_tenants",
      "Number of tenants whose clients lately could not reach the worker. "
      "From 2 on, all tenants prefer other workers.",
      static_cast<double>(unreached.tenants), {{"worker", worker.id}});
}

void CollectQuota(const Tenant& tenant, const std::string& label,
                  Exposition* out) {
  const auto nominal = [&](const char* resource, double value) {
    out->Gauge(kNominal, kNominalHelp, value,
               {{"tenant", label}, {"resource", resource}});
  };
  nominal("sessions", tenant.max_sessions);
  nominal("worker_memory_bytes",
          static_cast<double>(tenant.totals.memory_bytes()));
  const v1::TenantLimits& totals = tenant.totals;
  if (totals.has_content_bytes()) {
    nominal("worker_content_bytes",
            static_cast<double>(totals.content_bytes()));
  }
  if (totals.has_storage_bytes()) {
    nominal("worker_storage_bytes",
            static_cast<double>(totals.storage_bytes()));
  }
  if (totals.has_cache_bytes()) {
    nominal("worker_cache_bytes", static_cast<double>(totals.cache_bytes()));
  }
  nominal("worker_outstanding_messages", tenant.totals.max_outstanding());
  nominal("worker_outstanding_bytes",
          static_cast<double>(tenant.totals.max_outstanding_bytes()));
}

void CollectUse(const Use& used, const std::string& label, Exposition* out) {
  out->Counter(
      "djinn_tenant_bytes_total",
      "Bytes that the tenant's leases have transferred, in both directions.",
      static_cast<double>(used.bytes), {{"tenant", label}});
  for (int i = 0; i < PhaseTimes::kPhases; ++i) {
    const auto phase = static_cast<v1::Phase>(i);
    const absl::Duration time = used.phases.of(phase);
    if (time == absl::ZeroDuration() && phase != v1::PHASE_UNSPECIFIED) {
      continue;
    }
    out->Counter("djinn_tenant_device_seconds_total",
                 "Device time that the tenant's leases have used.",
                 absl::ToDoubleSeconds(time),
                 {{"tenant", label}, {"phase", PhaseName(phase)}});
  }
}

// Returns the outermost cohort. Its tenants lend each other quota, also those
// of the cohorts within it.
std::string OutermostCohort(const std::string& cohort) {
  return cohort.substr(0, cohort.find('/'));
}

void CollectQuotas(const v1::TenantInfo& info, const std::string& label,
                   Exposition* out) {
  out->Gauge(
      "djinn_tenant_weighted_share_ratio",
      "Quota that the tenant borrows from its cohort, divided by its weight.",
      info.weighted_share(),
      {{"tenant", label}, {"cohort", OutermostCohort(info.cohort())}});
  for (const v1::ResourceQuota& quota : info.quotas()) {
    const auto gauge = [&](const char* name, const char* help, double value) {
      out->Gauge(name, help, value,
                 {{"tenant", label}, {"resource", quota.resource()}});
    };
    gauge(kNominal, kNominalHelp, quota.nominal());
    gauge(kUsage, kUsageHelp, quota.used());
    if (quota.has_borrowing_limit()) {
      gauge("djinn_tenant_quota_borrow_limit",
            "Quota that the tenant may borrow beyond its nominal quota.",
            quota.borrowing_limit());
    }
    if (quota.has_lending_limit()) {
      gauge("djinn_tenant_quota_lend_limit",
            "Part of the tenant's nominal quota that others may borrow.",
            quota.lending_limit());
    }
  }
}

// Returns the priority class of a session that a worker reports.
std::string ClassOf(ClusterState& state, const std::string& session_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Session* const session = state.sessions.Find(session_id);
  if (session == nullptr) return PriorityClassName({});
  const auto tenant = state.tenants->Find(session->tenant);
  return PriorityClassName(
      AllowedUrgency(tenant.get(), session->urgency).priority_class());
}

void CollectTenants(ClusterState& state, Exposition* out)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Tenants::Snapshot tenants = state.tenants->all();
  auto sums = views::SumTenants(state);
  for (const auto& [name, configured] : *tenants) {
    const Tenant& tenant = *configured;
    const std::string label = state.metrics.tenants.For(name);
    CollectQuota(tenant, label, out);
    v1::TenantInfo info;
    views::Describe(state, tenant, sums[name], &info);
    const auto usage = [&](const char* resource, double value) {
      out->Gauge(kUsage, kUsageHelp, value,
                 {{"tenant", label}, {"resource", resource}});
    };
    usage("sessions", info.session_count());
    usage("leases", info.lease_count());
    usage("storage_bytes", static_cast<double>(info.storage_bytes()));
    usage("content_bytes", static_cast<double>(info.content_bytes()));
    usage("cache_bytes", static_cast<double>(info.use().caches().size_bytes()));
    usage("outstanding_messages", info.use().outstanding());
    usage("outstanding_bytes",
          static_cast<double>(info.use().outstanding_bytes()));
    CollectQuotas(info, label, out);
    out->Gauge("djinn_queue_stopped", "1 while the tenant's queue is stopped.",
               state.queue.stops.Find(name) != nullptr, {{"tenant", label}});
    const auto used = state.billing.ledger.tenants().find(name);
    CollectUse(used == state.billing.ledger.tenants().end() ? Use()
                                                            : used->second.used,
               label, out);
  }
  // Counters must not decrease, so the use of removed tenants stays, summed up
  // under their common label.
  for (const auto& [name, tenant] : state.billing.ledger.tenants()) {
    if (tenants->contains(name)) continue;
    CollectUse(tenant.used, state.metrics.tenants.For(name), out);
  }
  for (const auto& [id, worker] : state.workers.all()) {
    for (const auto& [lease_id, held] : worker->leases.held) {
      out->Gauge("djinn_pending_runs", "Runs received and not completed.",
                 held.use.queued_runs(),
                 {{"tenant", state.metrics.tenants.For(held.tenant)},
                  {"priority_class", ClassOf(state, held.session_id)},
                  {"reason", held.out_of_credit ? "out_of_credit" : "queued"}});
    }
  }
  // Counts virtual devices whose leases are requested and not granted.
  const absl::Duration now = state.clock->Monotonic();
  std::map<std::string, absl::Duration> longest;
  for (const auto& [id, session] : state.sessions.all()) {
    const std::string label = state.metrics.tenants.For(session->tenant);
    absl::Duration& age = longest[label];
    for (const auto& [device, pending] : session->devices.pending) {
      age = std::max(age, now - pending.asked);
      out->Gauge("djinn_pending_leases",
                 "Virtual devices that wait for a worker, by reason.", 1,
                 {{"tenant", label}, {"reason", PendingReason(pending)}});
    }
  }
  for (const auto& [tenant, age] : longest) {
    out->Gauge("djinn_oldest_pending_age_seconds",
               "Age of the tenant's oldest pending work.",
               absl::ToDoubleSeconds(age), {{"tenant", tenant}});
  }
}

}  // namespace

void Collect(ClusterState& state, Exposition* out) {
  state.metrics.Collect(out);
  MutexLock lock(&state.mu);
  const absl::Duration now = state.clock->Monotonic();
  for (const auto& [id, worker] : state.workers.all()) {
    CollectWorker(*worker, state.unreached.Summarize(id, now), now, out);
  }
  out->Counter(
      "djinn_preemption_lost_device_seconds_total",
      "Device time that was lost with leases whose quota was taken back.",
      state.quotas.lost_device_seconds);
  CollectTenants(state, out);
  demand::Collect(state, out);
}

}  // namespace djinn::coordinator::scrape
