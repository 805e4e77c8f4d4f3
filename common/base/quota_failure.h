// Adds a google.rpc.QuotaFailure payload to a Status, beside its ErrorInfo. It
// names the subject whose quota refused a request, in the form that gateways
// and client libraries expect.
#ifndef COMMON_BASE_QUOTA_FAILURE_H_
#define COMMON_BASE_QUOTA_FAILURE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn {

// Returns `status` with a payload that says that the tenant's quota is
// exceeded, with the message of `status` as the description. OK stays OK.
absl::Status WithQuotaFailure(absl::Status status, absl::string_view tenant);

}  // namespace djinn

#endif  // COMMON_BASE_QUOTA_FAILURE_H_
