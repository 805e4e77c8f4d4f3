// Adds a google.rpc.RetryInfo payload to a Status: when another attempt may
// succeed. ErrorDetail.retry_after carries it on the wire.
#ifndef COMMON_BASE_RETRY_AFTER_H_
#define COMMON_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace djinn {

// Returns `status` with the advice to try again after `delay` from now. A
// negative delay counts as zero. An infinite delay and OK add nothing.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// Returns the delay that the error advises. Empty when another attempt does not
// help or the time is unknown.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace djinn

#endif  // COMMON_BASE_RETRY_AFTER_H_
