// Tries another quota of one resource against the current use, and describes
// quotas to operators.
//
// Pure logic: nothing is changed.
#ifndef COORDINATOR_CONFIG_QUOTA_TRIAL_H_
#define COORDINATOR_CONFIG_QUOTA_TRIAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/config/configured_quotas.h"
#include "coordinator/config/tenants.h"
#include "djinn/v1/quota.pb.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::coordinator {

inline constexpr char kDeviceRate[] = "device_seconds_per_second";
inline constexpr char kByteRate[] = "bytes_per_second";

// What the tenant has of its quota.
v1::ResourceQuota DescribeAmount(const scheduler::QuotaTree& tree,
                                 const std::string& tenant,
                                 scheduler::Resource resource,
                                 const scheduler::Quota& quota);
v1::ResourceQuota DescribeRate(absl::string_view resource,
                               const scheduler::RateQuota& quota, double used,
                               const scheduler::RateShare& share);

// Checks a quota as the configuration would: InvalidArgument (RESOURCE_UNKNOWN,
// BAD_QUOTA) names the key that is wrong, and why.
absl::Status CheckTriedQuota(const v1::TryQuotaRequest& request,
                             const Tenant& tenant);

// The request is one that was checked, of a tenant among those configured.
// Of a resource that leases take; `tree` has `configured` and what is used.
v1::TryQuotaResponse TryAmount(const v1::TryQuotaRequest& request,
                               const ConfiguredQuotas& configured,
                               const scheduler::QuotaTree& tree);
// Of a rate; `budget` has `configured`.
v1::TryQuotaResponse TryRate(const v1::TryQuotaRequest& request,
                             const Tenant& tenant,
                             const ConfiguredRates& configured,
                             const scheduler::RateBudget& budget,
                             absl::Duration now);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_QUOTA_TRIAL_H_
