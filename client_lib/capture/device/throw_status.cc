#include "client_lib/capture/device/throw_status.h"

#include <atomic>
#include <optional>

#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "djinn/error.h"

namespace djinn {
namespace {

std::atomic<ErrorTranslator> translator = nullptr;

}  // namespace

Error Error::FromStatus(const absl::Status& status) {
  return Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
               ErrorReason(status), ErrorMetadataValue(status, "error_id"));
}

std::optional<absl::Duration> Error::retry_after() const {
  return RetryAfter(status_);
}

void SetErrorTranslator(ErrorTranslator chosen) { translator = chosen; }

namespace capture {

void ThrowStatus(const absl::Status& status) {
  const Error error = Error::FromStatus(status);
  if (const ErrorTranslator translate = translator) translate(error);
  throw error;
}

}  // namespace capture
}  // namespace djinn
