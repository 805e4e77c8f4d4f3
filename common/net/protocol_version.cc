#include "common/net/protocol_version.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {

absl::Status CheckProtocolVersion(uint32_t theirs, absl::string_view peer) {
  if (theirs == kProtocolVersion) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "PROTOCOL_VERSION",
      absl::StrCat("this side speaks protocol version ", kProtocolVersion,
                   ", the ", peer, " version ", theirs),
      {{"own", absl::StrCat(kProtocolVersion)},
       {"theirs", absl::StrCat(theirs)}});
}

}  // namespace djinn
