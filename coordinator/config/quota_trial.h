// Describes quotas to operators, puts another quota of one resource into a
// tenant, and tries one against the current use.
//
// Pure logic: changes no state.
#ifndef COORDINATOR_CONFIG_QUOTA_TRIAL_H_
#define COORDINATOR_CONFIG_QUOTA_TRIAL_H_

#include <optional>
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

// Returns OK if there is such a resource, otherwise InvalidArgument
// (RESOURCE_UNKNOWN), which names all of them.
absl::Status CheckResource(absl::string_view resource);

// Checks a quota as the configuration does. InvalidArgument (RESOURCE_UNKNOWN,
// BAD_QUOTA) names the wrong key and the reason.
absl::Status CheckQuota(absl::string_view resource,
                        const v1::QuotaAmounts& amounts, const Tenant& tenant);

// Puts a quota into the tenant. CheckResource() must have passed.
void PutQuota(absl::string_view resource, const v1::QuotaAmounts& amounts,
              Tenant* tenant);
// Returns the tenant's quota of the resource; nothing when it has none.
// CheckResource() must have passed.
std::optional<v1::QuotaAmounts> QuotaOf(absl::string_view resource,
                                        const Tenant& tenant);

// Returns the quota that a request tries.
v1::QuotaAmounts TriedAmounts(const v1::TryQuotaRequest& request);

// Tries a quota of a resource that leases take. The request must have passed
// CheckQuota(), for a configured tenant. `tree` holds `configured` and the
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
