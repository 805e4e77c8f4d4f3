// When to try again what failed: a google.rpc.RetryInfo payload of a Status,
// which ErrorDetail.retry_after carries on the wire.
#ifndef COMMON_BASE_RETRY_AFTER_H_
#define COMMON_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace djinn {

// The same error, which says that it may be worth while to try again after
// `delay`, from now. Of a delay that is negative the error says zero; of an
// infinite one, and of OK, nothing.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// What the error says of that; nothing when trying again does not help, or
// nobody knows when it will.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace djinn

#endif  // COMMON_BASE_RETRY_AFTER_H_
