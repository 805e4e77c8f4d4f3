// Whose quota keeps a request from being granted: a google.rpc.QuotaFailure
// payload of a Status, beside its ErrorInfo, as gateways and client libraries
// look for it.
#ifndef COMMON_BASE_QUOTA_FAILURE_H_
#define COMMON_BASE_QUOTA_FAILURE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn {

// The same error, which says that the quota of the tenant is exceeded, and in
// which way: its message. OK stays OK.
absl::Status WithQuotaFailure(absl::Status status, absl::string_view tenant);

}  // namespace djinn

#endif  // COMMON_BASE_QUOTA_FAILURE_H_
