// Tries another quota of one resource against the current use, and describes
// quotas to operators.
//
// Pure logic: changes no state.
#ifndef COORDINATOR_CONFIG_QUOTA_TRIAL_H_
#define COORDINATOR_CONFIG_QUOTA_TRIAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/config/tenants.h"
#include "djinn/v1/quota.pb.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::coordinator {

inline constexpr char kDeviceRate[] = "device_seconds_per_second";
inline constexpr char kByteRate[] = "bytes_per_second";

// Describe the state of a tenant's quota: of a resource that leases take, or of
// a rate.
v1::ResourceQuota DescribeAmount(const scheduler::QuotaTree& tree,
                                 const std::string& tenant,
                                 scheduler::Resource resource,
                                 const scheduler::Quota& quota);
v1::ResourceQuota DescribeRate(absl::string_view resource,
                               const scheduler::RateQuota& quota, double used,
                               const scheduler::RateShare& share);

// Checks a quota as the configuration does. InvalidArgument (RESOURCE_UNKNOWN,
// BAD_QUOTA) names the wrong key and the reason.
absl::Status CheckTriedQuota(const v1::TryQuotaRequest& request,
                             const Tenant& tenant);

// Tries a quota of a resource that leases take. The request must have passed
// CheckTriedQuota(), for a configured tenant. `tree` holds `configured` and the
// current use.
v1::TryQuotaResponse TryAmount(const v1::TryQuotaRequest& request,
                               const ConfiguredQuotas& configured,
                               const scheduler::QuotaTree& tree);
// Tries a quota that is a rate, under the same conditions; `budget` holds
// `configured`.
v1::TryQuotaResponse TryRate(const v1::TryQuotaRequest& request,
                             const Tenant& tenant,
                             const ConfiguredRates& configured,
                             const scheduler::RateBudget& budget,
                             absl::Duration now);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_QUOTA_TRIAL_H_
