// Converts the session's statuses to the exceptions that PyTorch kernels throw.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_THROW_STATUS_H_
#define CLIENT_LIB_CAPTURE_DEVICE_THROW_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn::capture {

// Throws djinn::Error, or the exception that the ErrorTranslator makes of it.
[[noreturn]] void ThrowStatus(const absl::Status& status);

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) ThrowStatus(status);
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) ThrowStatus(value.status());
  return *std::move(value);
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_THROW_STATUS_H_
