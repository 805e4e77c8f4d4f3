// Tenants that come, change and go while the cluster runs.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/error.h"
#include "common/log/log.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

bool Same(const Tenant& a, const Tenant& b) {
  return a.token == b.token && a.max_sessions == b.max_sessions &&
         a.limits.SerializeAsString() == b.limits.SerializeAsString() &&
         a.totals.SerializeAsString() == b.totals.SerializeAsString() &&
         a.credits == b.credits && a.placement == b.placement &&
         a.weight == b.weight && a.max_priority_class == b.max_priority_class &&
         a.share_contents == b.share_contents &&
         a.batch_with_others == b.batch_with_others && a.cohort == b.cohort &&
         a.quotas == b.quotas && a.device_rate == b.device_rate &&
         a.byte_rate == b.byte_rate;
}

// The cohort and those around it, in order of names.
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

}  // namespace

v1::ReloadConfigResponse Cluster::SetTenants(std::vector<Tenant> tenants,
                                             std::vector<Cohort> cohorts) {
  Wakes wakes;
  MutexLock lock(&mu_);
  v1::ReloadConfigResponse changes;
  const Tenants::Snapshot before = tenants_->all();
  const std::vector<std::string> sharing = SharingTenants();
  const std::vector<std::string> batching = BatchingTenants();
  tenants_->Replace(std::move(tenants));
  const std::vector<Cohort> cohorts_before =
      std::exchange(cohorts_, std::move(cohorts));
  ConfigureQuotas();
  for (const auto& [name, tenant] : *tenants_->all()) {
    const auto old = before->find(name);
    if (old == before->end()) {
      changes.add_added_tenants(name);
    } else if (!Same(*tenant, *old->second)) {
      changes.add_changed_tenants(name);
      ApplyTenant(*tenant, &wakes);
    } else if (CohortsOf(tenant->cohort, cohorts_) !=
               CohortsOf(tenant->cohort, cohorts_before)) {
      changes.add_changed_tenants(name);
    }
  }
  for (const auto& [name, tenant] : *before) {
    if (tenants_->Find(name) != nullptr) continue;
    changes.add_removed_tenants(name);
    RemoveTenant(name, &wakes);
  }
  if (SharingTenants() != sharing || BatchingTenants() != batching) {
    // Those who have none of their leases, too: contents outlive leases.
    for (const auto& [id, worker] : workers_.all()) Touch(worker.get(), &wakes);
  }
  return changes;
}

std::vector<std::string> Cluster::TenantsThat(bool Tenant::* agree) const {
  std::vector<std::string> names;
  for (const auto& [name, tenant] : *tenants_->all()) {
    if (tenant.get()->*agree) names.push_back(name);
  }
  return names;
}

void Cluster::ApplyTenant(const Tenant& tenant, Wakes* wakes) {
  for (const auto& [id, lease] : leases_.all()) {
    if (lease->tenant != tenant.name) continue;
    lease->limits = tenant.limits;
    lease->tenant_limits = tenant.totals;
    // One that it may go to counts no more than before.
    if (!lease->migrating() || lease->quota != scheduler::Amounts()) {
      quotas_.Give(tenant.name, lease->quota);
      lease->quota = LeaseQuota(tenant);
      quotas_.Take(tenant.name, lease->quota);
    }
    TopUp(id, tenant);
    lease->reissue_time = absl::InfinitePast();
    Touch(workers_.Find(lease->worker_id), wakes);
  }
  // The highest class that they may ask for may be another.
  for (const auto& [id, session] : sessions_.all()) {
    if (session->tenant == tenant.name) ChangePlaces(session.get());
  }
}

void Cluster::RemoveTenant(const std::string& name, Wakes* wakes) {
  std::vector<Session*> sessions;
  for (const auto& [id, session] : sessions_.all()) {
    if (session->tenant == name) sessions.push_back(session.get());
  }
  for (Session* session : sessions) {
    if (session->stream == 0) {
      EndSession(session, "its tenant was removed", wakes);
      continue;
    }
    // Its stream is told why, and takes it along.
    ReleaseSession(session, "its tenant was removed", wakes);
    session->end =
        MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                  "tenant " + name + " is not configured any more");
    wakes->Add(session->waker);
  }
}

}  // namespace djinn::coordinator
