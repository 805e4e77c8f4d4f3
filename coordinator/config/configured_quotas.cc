#include "coordinator/config/configured_quotas.h"

#include <optional>

namespace djinn::coordinator {
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
