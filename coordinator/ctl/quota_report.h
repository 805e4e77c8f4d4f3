// A quota that is tried: from a command line, and what it would do.
#ifndef COORDINATOR_CTL_QUOTA_REPORT_H_
#define COORDINATOR_CTL_QUOTA_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/ctl/command_line.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Limits that the command does not name are as the tenant has them. What is
// wrong with an amount is InvalidArgument.
absl::StatusOr<v1::TryQuotaRequest> TriedQuota(const Command& command,
                                               const v1::TenantInfo& tenant);

std::string Report(const v1::TryQuotaRequest& request,
                   const v1::TryQuotaResponse& response);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_QUOTA_REPORT_H_
