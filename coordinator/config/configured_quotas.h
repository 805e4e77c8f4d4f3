// Converts the configured quotas of tenants and cohorts to the forms with which
// the scheduler computes.
#ifndef COORDINATOR_CONFIG_CONFIGURED_QUOTAS_H_
#define COORDINATOR_CONFIG_CONFIGURED_QUOTAS_H_

#include <vector>

#include "coordinator/config/tenants.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::coordinator {

struct ConfiguredRates {
  // The tenants and the cohorts that have a quota of this rate.
  std::vector<scheduler::RateBudget::Tenant> tenants;
  std::vector<scheduler::CohortRate> cohorts;
};

struct ConfiguredQuotas {
  std::vector<scheduler::TenantQuota> tenants;
  std::vector<scheduler::CohortQuota> cohorts;
  ConfiguredRates device_rates;
  ConfiguredRates byte_rates;
};

ConfiguredQuotas QuotasOf(const Tenants::Map& tenants,
                          const std::vector<Cohort>& cohorts);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CONFIGURED_QUOTAS_H_
