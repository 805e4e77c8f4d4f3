// Makes errors that programs can tell apart: an absl::Status with a
// google.rpc.ErrorInfo payload (domain "djinn").
#ifndef COMMON_BASE_ERROR_H_
#define COMMON_BASE_ERROR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/types.pb.h"

namespace djinn {

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// Returns an error with an ErrorInfo payload. `reason` is UPPER_SNAKE_CASE and
// part of the contract; `message` is human-readable.
absl::Status MakeError(absl::StatusCode code, absl::string_view reason,
                       absl::string_view message, ErrorMetadata metadata = {});

// Returns the reason of an error made here or by a Djinn peer; empty for other
// errors.
std::string ErrorReason(const absl::Status& status);

// Returns one entry of the error's metadata; empty when absent.
std::string ErrorMetadataValue(const absl::Status& status,
                               absl::string_view key);

// Returns a refusal by a limit: RESOURCE_EXHAUSTED whose text and metadata
// state the limit, the use and the demand, in bytes.
absl::Status LimitExceeded(absl::string_view reason, absl::string_view what,
                           uint64_t limit, uint64_t used, uint64_t asked);

// Returns the status that a caller sees for a root error. Its text names
// operator, node, operands, worker, tenant, lane and error id. The payload
// carries them, too.
absl::Status StatusFromDetail(const v1::ErrorDetail& detail);

// Fills code, reason and message of `detail` from `status`, which is not OK.
void FillDetail(const absl::Status& status, v1::ErrorDetail* detail);

// Adds a google.rpc.QuotaFailure payload, which gateways and client libraries
// know: it names the tenant, and describes the violation by the message of
// `status`. OK stays OK.
absl::Status WithQuotaFailure(absl::Status status, absl::string_view tenant);

}  // namespace djinn

#endif  // COMMON_BASE_ERROR_H_
