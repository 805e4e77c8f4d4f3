#include "coordinator/ctl/exit_status.h"

#include <string>

#include "common/error.h"

namespace djinn::ctl {

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  const std::string reason = ErrorReason(status);
  if (reason == "TLS_HANDSHAKE") return kUnreachable;
  // A coordinator says why; so does gRPC on its behalf when it does not know
  // the call.
  return reason.empty() && !absl::IsUnimplemented(status) ? kUnreachable
                                                          : kRefused;
}

}  // namespace djinn::ctl
