#include "coordinator/config/tenants.h"

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/lease/priority_class.h"
#include "common/net/bearer.h"

namespace djinn::coordinator {

void Tenants::Replace(std::vector<Tenant> tenants) {
  auto map = std::make_shared<Map>();
  for (Tenant& tenant : tenants) {
    std::string name = tenant.name;
    map->emplace(std::move(name),
                 std::make_shared<const Tenant>(std::move(tenant)));
  }
  MutexLock lock(&mu_);
  tenants_ = std::move(map);
}

bool SameSettings(const Tenant& a, const Tenant& b) {
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

scheduler::Amounts LeaseQuota(const Tenant& tenant) {
  const v1::SessionLimits& limits = tenant.limits;
  scheduler::Amounts amounts = {};
  const auto take = [&amounts](scheduler::Resource resource, uint64_t amount) {
    amounts[static_cast<size_t>(resource)] = static_cast<int64_t>(
        std::min<uint64_t>(amount, scheduler::Quota::kUnlimited));
  };
  const uint64_t memory = limits.memory_bytes();
  take(scheduler::Resource::kMemoryBytes, memory);
  take(scheduler::Resource::kContentBytes,
       limits.has_content_bytes() ? limits.content_bytes() : memory);
  take(scheduler::Resource::kStorageBytes,
       limits.has_storage_bytes() ? limits.storage_bytes() : memory);
  take(scheduler::Resource::kCacheBytes,
       limits.has_cache_bytes() ? limits.cache_bytes() : memory);
  take(scheduler::Resource::kOutstandingMessages, limits.max_outstanding());
  return amounts;
}

uint64_t LeaseMemory(const Tenant& tenant) {
  return std::min(tenant.limits.memory_bytes(), tenant.totals.memory_bytes());
}

Tenants::Snapshot Tenants::all() const {
  MutexLock lock(&mu_);
  return tenants_;
}

std::vector<Tenant> Tenants::Configured() const {
  std::vector<Tenant> configured;
  const Snapshot tenants = all();
  for (const auto& [name, tenant] : *tenants) {
    configured.push_back(tenant->configured == nullptr ? *tenant
                                                       : *tenant->configured);
  }
  return configured;
}

absl::StatusOr<std::shared_ptr<const Tenant>> Tenants::Authenticate(
    absl::string_view token) const {
  std::shared_ptr<const Tenant> found;
  const Snapshot tenants = all();
  for (const auto& [name, tenant] : *tenants) {
    if (TokensEqual(token, tenant->token)) found = tenant;
  }
  if (found == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "no tenant has this token");
  }
  return found;
}

std::shared_ptr<const Tenant> Tenants::Find(absl::string_view name) const {
  const Snapshot tenants = all();
  const auto found = tenants->find(name);
  return found == tenants->end() ? nullptr : found->second;
}

std::vector<std::string> Tenants::NamesThat(bool Tenant::* agree) const {
  std::vector<std::string> names;
  const Snapshot tenants = all();
  for (const auto& [name, tenant] : *tenants) {
    if (tenant.get()->*agree) names.push_back(name);
  }
  return names;
}

v1::Urgency KnownUrgency(const v1::Urgency& said) {
  v1::Urgency known;
  known.set_priority_class(said.priority_class());
  if (said.has_run_deadline()) {
    *known.mutable_run_deadline() =
        ToProtoDuration(FromProtoDuration(said.run_deadline()));
  }
  return known;
}

v1::Urgency AllowedUrgency(const Tenant& tenant, const v1::Urgency& asked) {
  v1::Urgency allowed = KnownUrgency(asked);
  const v1::PriorityClass counts = EffectiveClass(asked.priority_class());
  // An undeclared class stays undeclared, so that workers look at what runs.
  if (IsDeclared(asked.priority_class()) ||
      counts > tenant.max_priority_class) {
    allowed.set_priority_class(std::min(counts, tenant.max_priority_class));
  }
  return allowed;
}

v1::Urgency AllowedUrgency(const Tenant* tenant, const v1::Urgency& asked) {
  return tenant == nullptr ? asked : AllowedUrgency(*tenant, asked);
}

namespace {

void AddRate(const Tenant& tenant,
             const std::optional<scheduler::RateQuota>& quota,
             ConfiguredRates* rates) {
  if (!quota.has_value()) return;
  rates->tenants.push_back({tenant.name, tenant.cohort, tenant.weight, *quota});
}

void AddRate(const Cohort& cohort,
             const std::optional<scheduler::RateQuota>& quota,
             ConfiguredRates* rates) {
  rates->cohorts.push_back(
      {cohort.name, cohort.weight, quota.value_or(scheduler::RateQuota())});
}

}  // namespace

ConfiguredQuotas QuotasOf(const Tenants::Map& tenants,
                          const std::vector<Cohort>& cohorts) {
  ConfiguredQuotas quotas;
  for (const auto& [name, tenant] : tenants) {
    quotas.tenants.push_back(
        {name, tenant->cohort, tenant->weight, tenant->quotas});
    AddRate(*tenant, tenant->device_rate, &quotas.device_rates);
    AddRate(*tenant, tenant->byte_rate, &quotas.byte_rates);
  }
  for (const Cohort& cohort : cohorts) {
    quotas.cohorts.push_back({cohort.name, cohort.weight, cohort.quotas});
    AddRate(cohort, cohort.device_rate, &quotas.device_rates);
    AddRate(cohort, cohort.byte_rate, &quotas.byte_rates);
  }
  return quotas;
}

}  // namespace djinn::coordinator
