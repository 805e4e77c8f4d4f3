// Reports of current use, and of quotas and what a change of them would do.
#ifndef COORDINATOR_CTL_REPORTS_H_
#define COORDINATOR_CTL_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/ctl/command_line.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Lists the workers, the busiest first: the busy fraction of the last minute,
// memory, and queue.
std::string TopWorkers(const v1::ListWorkersResponse& workers);

// Lists the tenants by the device time that they used between the two lists,
// the second of which was made `passed` after the first. Shows, for each, how
// many devices that time would keep busy, the bytes that it moved per second,
// and what it holds.
std::string TopTenants(const v1::ListTenantsResponse& before,
                       const v1::ListTenantsResponse& after,
                       absl::Duration passed);

// Describes a tenant's quota in one line: its use, limits, and who set it in
// place of what.
std::string DescribeQuota(const v1::ResourceQuota& quota);

// Converts the words of a `quota set` to a request. Amounts that they do not
// name stay as the tenant has them. InvalidArgument names a wrong word.
absl::StatusOr<v1::SetQuotaRequest> QuotaToSet(const Command& command,
                                               const v1::TenantInfo& tenant);
// Returns the requests that try those quotas, one for each resource, in order.
std::vector<v1::TryQuotaRequest> QuotasToTry(const v1::SetQuotaRequest& set);

std::string Report(const v1::TryQuotaRequest& request,
                   const v1::TryQuotaResponse& response);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_REPORTS_H_
