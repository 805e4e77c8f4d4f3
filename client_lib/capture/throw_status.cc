#include "client_lib/capture/throw_status.h"

#include "common/error.h"
#include "djinn/error.h"

namespace djinn::capture {

void ThrowStatus(const absl::Status& status) {
  throw Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
              ErrorReason(status), ErrorMetadataValue(status, "error_id"));
}

}  // namespace djinn::capture
