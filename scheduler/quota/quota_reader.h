// Quotas as people write them, in the coordinator's configuration and in traces
// of the simulator:
//
//   cohort: lab/vision
//   quota:
//     memory_bytes:
//       nominalQuota: 64GiB
//       borrowingLimit: 16GiB   # absent: not limited
//       lendingLimit: 32GiB
//     device_seconds_per_second: {nominalQuota: 2.5}
#ifndef SCHEDULER_QUOTA_QUOTA_READER_H_
#define SCHEDULER_QUOTA_QUOTA_READER_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/config_reader.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::scheduler {

// Reports an error if the name is no valid path of a cohort. Accepts an empty
// name, which stands for none.
void CheckCohortName(ConfigMap* map, absl::string_view key,
                     const std::string& name);

// A tenant or cohort that has a quota.
struct QuotaOwner {
  // True when the quota must contain nominalQuota, as a tenant's must.
  bool needs_nominal = false;
  // True when it can borrow and lend; otherwise the reason why it cannot.
  bool has_neighbours = false;
  const char* alone = "";
};
// `cohort` is the tenant's cohort, or empty.
QuotaOwner TenantAsOwner(absl::string_view cohort);
QuotaOwner CohortAsOwner(absl::string_view name);

// Reads the quotas of those resources that have a key; `map` is the one under
// "quota".
void ReadQuotas(ConfigMap* map, const QuotaOwner& owner,
                absl::Span<const Resource> resources, Quotas* quotas);
enum class RateUnit { kSeconds, kBytes };
// Returns nothing when there is no such key.
std::optional<RateQuota> ReadRateQuota(ConfigMap* map, absl::string_view key,
                                       RateUnit unit, const QuotaOwner& owner);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_QUOTA_READER_H_
