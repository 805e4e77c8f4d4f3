#include "coordinator/cluster/tenants.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/session_table.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::tenants {
namespace {

// Returns the cohort and those that contain it, by name.
std::vector<Cohort> CohortsOf(const std::string& name,
                              const std::vector<Cohort>& all) {
  std::vector<Cohort> around;
  for (const Cohort& cohort : all) {
    if (name == cohort.name || absl::StartsWith(name, cohort.name + "/")) {
      around.push_back(cohort);
    }
  }
  std::sort(around.begin(), around.end(),
            [](const Cohort& a, const Cohort& b) { return a.name < b.name; });
  return around;
}

void Apply(ClusterState& state, const Tenant& tenant, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const auto& [id, lease] : state.leases.all()) {
    if (lease->tenant != tenant.name) continue;
    lease->limits = tenant.limits;
    lease->tenant_limits = tenant.totals;
    // A lease that a virtual device migrates to holds no quota, and gets none.
    if (!lease->migrating() || lease->quota != scheduler::Amounts()) {
      state.quotas.tree.Give(tenant.name, lease->quota);
      lease->quota = LeaseQuota(tenant);
      state.quotas.tree.Take(tenant.name, lease->quota);
    }
    credits::TopUp(state, id, tenant);
    notifications::SignAgain(state, lease.get(), wakes);
  }
  // The tenant's highest priority class may have changed.
  for (const auto& [id, session] : state.sessions.all()) {
    if (session->tenant == tenant.name) {
      line::ChangePlaces(state, session.get());
    }
  }
}

void Remove(ClusterState& state, const std::string& name, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  std::vector<Session*> sessions;
  for (const auto& [id, session] : state.sessions.all()) {
    if (session->tenant == name) sessions.push_back(session.get());
  }
  for (Session* session : sessions) {
    if (session->link.number == 0) {
      sessions::End(state, session, "its tenant was removed", wakes);
      continue;
    }
    // The session's stream sends the reason and then removes the session.
    sessions::Release(state, session, "its tenant was removed", wakes);
    session->end =
        MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                  "tenant " + name + " is not configured any more");
    wakes->Add(session->link.waker);
  }
}

// Replaces the tenants and cohorts in force.
v1::ReloadConfigResponse Replace(ClusterState& state,
                                 std::vector<Tenant> tenants,
                                 std::vector<Cohort> cohorts, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  v1::ReloadConfigResponse changes;
  const Tenants::Snapshot before = state.tenants->all();
  const std::vector<std::string> sharing =
      state.tenants->NamesThat(&Tenant::share_contents);
  const std::vector<std::string> batching =
      state.tenants->NamesThat(&Tenant::batch_with_others);
  state.tenants->Replace(std::move(tenants));
  const std::vector<Cohort> cohorts_before =
      std::exchange(state.quotas.cohorts, std::move(cohorts));
  quota::Configure(state);
  for (const auto& [name, tenant] : *state.tenants->all()) {
    const auto old = before->find(name);
    if (old == before->end()) {
      changes.add_added_tenants(name);
    } else if (!SameSettings(*tenant, *old->second)) {
      changes.add_changed_tenants(name);
      Apply(state, *tenant, wakes);
    } else if (CohortsOf(tenant->cohort, state.quotas.cohorts) !=
               CohortsOf(tenant->cohort, cohorts_before)) {
      changes.add_changed_tenants(name);
    }
  }
  for (const auto& [name, tenant] : *before) {
    if (state.tenants->Find(name) != nullptr) continue;
    changes.add_removed_tenants(name);
    Remove(state, name, wakes);
  }
  if (state.tenants->NamesThat(&Tenant::share_contents) != sharing ||
      state.tenants->NamesThat(&Tenant::batch_with_others) != batching) {
    // Also wakes workers without a lease of these tenants: contents outlive
    // leases.
    for (const auto& [id, worker] : state.workers.all()) {
      notifications::Touch(worker.get(), wakes);
    }
  }
  return changes;
}

}  // namespace

v1::ReloadConfigResponse Set(ClusterState& state, std::vector<Tenant> tenants,
                             std::vector<Cohort> cohorts) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  return Replace(state, state.quotas.overrides.Over(std::move(tenants)),
                 std::move(cohorts), &wakes);
}

void ApplyOverrides(ClusterState& state, Wakes* wakes) {
  Replace(state, state.quotas.overrides.Over(state.tenants->Configured()),
          state.quotas.cohorts, wakes);
  placement::RetryUnplaced(state, wakes);
}

void DrainStopped(ClusterState& state, Wakes* wakes) {
  for (const auto& [tenant, stop] : state.queue.stops.all()) {
    if (!stop.drain) continue;
    std::vector<std::string> ends;
    for (const Lease* lease : state.leases.OfTenant(tenant)) {
      ends.push_back(lease->id);
    }
    for (const std::string& id : ends) {
      Lease* const lease = state.leases.Find(id);
      // The lease ended together with the lease that it was to replace.
      if (lease == nullptr) continue;
      const std::string session_id = lease->session_id;
      const std::string worker_id = lease->worker_id;
      if (Lease* const to = state.leases.FindMigration(*lease)) {
        leases::DropMigration(state, to, QueueStopped(tenant), wakes);
      }
      if (!lease->migrating() && lease->state == Lease::State::kGranted) {
        state.sessions.Find(session_id)
            ->devices.returning.insert(lease->device);
      }
      leases::End(state, lease, "QUEUE_STOPPED", wakes);
      notifications::LeaveWorker(state, session_id, worker_id, wakes);
    }
  }
}

}  // namespace djinn::coordinator::tenants
