// Reports of current use, and of what a change of a quota would do.
#ifndef COORDINATOR_CTL_REPORTS_H_
#define COORDINATOR_CTL_REPORTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/ctl/command_line.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Workers, the busiest first: the part of the last minute in which the device
// was busy, memory, what is queued.
std::string TopWorkers(const v1::ListWorkersResponse& workers);

// Tenants, by the device time that they used from one list to the next,
// `passed` later: how many devices that makes, what they moved a second, and
// what they hold.
std::string TopTenants(const v1::ListTenantsResponse& before,
                       const v1::ListTenantsResponse& after,
                       absl::Duration passed);

// Limits that the command does not name are as the tenant has them. What is
// wrong with an amount is InvalidArgument.
absl::StatusOr<v1::TryQuotaRequest> TriedQuota(const Command& command,
                                               const v1::TenantInfo& tenant);

std::string Report(const v1::TryQuotaRequest& request,
                   const v1::TryQuotaResponse& response);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_REPORTS_H_
