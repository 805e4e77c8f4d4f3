#include "coordinator/cluster/quota/quota.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/quota/away.h"
#include "coordinator/config/quota_trial.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/errors.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"

namespace djinn::coordinator::quota {

using scheduler::RateBudget;

namespace {

// Returns how long it takes at most until some of the tenant's quota may be
// free, because a session without a stream counts as away or times out, or
// restored leases are given up. Returns infinity when that is not known.
absl::Duration UntilFree(ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  absl::Duration next = away::NextTime(state, tenant);
  for (const auto& [id, restored] : state.earlier.leases) {
    if (restored.tenant == tenant) next = std::min(next, state.earlier.until);
  }
  return next - state.clock->Monotonic();
}

// Returns why the tenant's quota has no room for another lease. Returns nothing
// if there is room, or if borrowers can give back enough.
std::optional<scheduler::QuotaTree::Breach> BreachOf(const ClusterState& state,
                                                     const Tenant& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  auto breach = state.quotas.tree.Check(tenant.name, asked);
  if (breach.has_value() &&
      state.quotas.tree.Reclaim(tenant.name, asked).has_value()) {
    return std::nullopt;
  }
  return breach;
}

// Notes in the description of a quota whether an operator set it.
void DescribeOverride(const ClusterState& state, const Tenant& tenant,
                      v1::ResourceQuota* quota)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const v1::StoredQuota* const stored =
      state.quotas.overrides.Find(tenant.name, quota->resource());
  if (stored == nullptr || tenant.configured == nullptr) return;
  v1::QuotaOverride* const out = quota->mutable_override();
  out->set_set_by(stored->set_by());
  *out->mutable_set_time() = stored->set_time();
  const auto configured = QuotaOf(quota->resource(), *tenant.configured);
  if (configured.has_value()) *out->mutable_configured() = *configured;
  out->set_until_restart(state.config.state_file.empty() &&
                         !state.config.etcd.enabled());
}

}  // namespace

void Configure(ClusterState& state) {
  ConfiguredQuotas configured =
      QuotasOf(*state.tenants->all(), state.quotas.cohorts);
  for (const scheduler::TenantQuota& tenant : configured.tenants) {
    state.queue.line.SetWeight(tenant.tenant, tenant.weight);
  }
  state.quotas.tree.Configure(configured.tenants, configured.cohorts);
  state.billing.device_rates.Configure(
      std::move(configured.device_rates.tenants),
      std::move(configured.device_rates.cohorts));
  state.billing.byte_rates.Configure(std::move(configured.byte_rates.tenants),
                                     std::move(configured.byte_rates.cohorts));
}

bool AdmitOrRefuse(ClusterState& state, MemberId device, const Tenant& tenant,
                   Session* session, Wakes* wakes) {
  PendingLease& pending = session->devices.pending.at(device);
  absl::Status why = LimitObstacle(tenant, pending.needed_bytes);
  bool may_wait = false;
  if (why.ok()) {
    if (session->link.number != 0) away::MakeRoom(state, tenant, wakes);
    const auto breach = BreachOf(state, tenant);
    if (!breach.has_value()) return true;
    why = Exceeded(tenant, *breach);
    may_wait = breach->may_wait;
    // The request would fit if the tenant held nothing else.
    if (!may_wait && breach->asked <= breach->limit) {
      why = WithRetryAfter(std::move(why), UntilFree(state, tenant.name));
    }
  }
  state.metrics.attempts.Add({"quota_exceeded"});
  if (may_wait) {
    // No worker was searched, so an older decision no longer counts.
    pending.decision = {};
    line::LeaveUnplaced(state, device, why, session, wakes);
    return false;
  }
  line::Leave(state, &pending);
  session->devices.pending.erase(device);
  notifications::Refuse(state, why, device, session, wakes);
  return false;
}

absl::Status LimitObstacle(const Tenant& tenant, uint64_t needed_bytes) {
  const uint64_t limit = LeaseMemory(tenant);
  if (needed_bytes <= limit) return absl::OkStatus();
  const std::string resource(
      scheduler::ResourceName(scheduler::Resource::kMemoryBytes));
  return MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("a lease of tenant ", tenant.name, " may have ", limit, " ",
                   resource, ", has 0 and asks for ", needed_bytes, " more"),
      {{"resource", resource},
       {"limit", absl::StrCat(limit)},
       {"used", "0"},
       {"asked", absl::StrCat(needed_bytes)}});
}

absl::Status Obstacle(const ClusterState& state, const Tenant& tenant) {
  const auto breach = BreachOf(state, tenant);
  return breach.has_value() ? Exceeded(tenant, *breach) : absl::OkStatus();
}

absl::Status Exceeded(const Tenant& tenant,
                      const scheduler::QuotaTree::Breach& breach) {
  const std::string resource(scheduler::ResourceName(breach.resource));
  return MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("tenant ", tenant.name, " may have ", breach.limit, " ",
                   resource, breach.may_wait ? " for now" : "", ", has ",
                   breach.used, " and asks for ", breach.asked, " more"),
      {{"resource", resource},
       {"limit", absl::StrCat(breach.limit)},
       {"used", absl::StrCat(breach.used)},
       {"asked", absl::StrCat(breach.asked)}});
}

void Describe(ClusterState& state, const Tenant& tenant, v1::TenantInfo* info) {
  info->set_cohort(tenant.cohort);
  info->set_weighted_share(
      std::max({state.quotas.tree.Share(tenant.name),
                state.billing.device_rates.WeightedShareOf(tenant.name),
                state.billing.byte_rates.WeightedShareOf(tenant.name)}));
  for (size_t i = 0; i < scheduler::kResources; ++i) {
    if (!tenant.quotas[i].limited()) continue;
    *info->add_quotas() =
        DescribeAmount(state.quotas.tree, tenant.name,
                       static_cast<scheduler::Resource>(i), tenant.quotas[i]);
  }
  const auto add_rate = [&](const char* resource,
                            const std::optional<scheduler::RateQuota>& rate,
                            const RateBudget& budget) {
    if (!rate.has_value()) return;
    *info->add_quotas() =
        DescribeRate(resource, *rate, budget.RateOf(tenant.name),
                     budget.ShareOf(tenant.name));
  };
  add_rate(kDeviceRate, tenant.device_rate, state.billing.device_rates);
  add_rate(kByteRate, tenant.byte_rate, state.billing.byte_rates);
  for (v1::ResourceQuota& quota : *info->mutable_quotas()) {
    DescribeOverride(state, tenant, &quota);
  }
}

absl::StatusOr<v1::TryQuotaResponse> Try(ClusterState& state,
                                         const v1::TryQuotaRequest& request) {
  MutexLock lock(&state.mu);
  const Tenants::Snapshot tenants = state.tenants->all();
  const auto tenant = tenants->find(request.tenant());
  if (tenant == tenants->end()) {
    return Unknown("TENANT", request.tenant());
  }
  DJINN_RETURN_IF_ERROR(
      CheckQuota(request.resource(), TriedAmounts(request), *tenant->second));
  const ConfiguredQuotas configured = QuotasOf(*tenants, state.quotas.cohorts);
  if (request.resource() == kDeviceRate) {
    return TryRate(request, *tenant->second, configured.device_rates,
                   state.billing.device_rates, state.clock->Monotonic());
  }
  if (request.resource() == kByteRate) {
    return TryRate(request, *tenant->second, configured.byte_rates,
                   state.billing.byte_rates, state.clock->Monotonic());
  }
  return TryAmount(request, configured, state.quotas.tree);
}

}  // namespace djinn::coordinator::quota
