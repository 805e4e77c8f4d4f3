#include "common/net/protocol_version.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/error.h"

namespace djinn {
namespace {

std::string Describe(const v1::ProtocolWindow& window) {
  return absl::StrCat("[", window.min(), ", ", window.max(), "]");
}

}  // namespace

v1::ProtocolWindow OwnProtocolWindow() {
  v1::ProtocolWindow window;
  window.set_min(kMinProtocolVersion);
  window.set_max(kMaxProtocolVersion);
  return window;
}

absl::StatusOr<uint32_t> NegotiateProtocol(const v1::ProtocolWindow& own,
                                           const v1::ProtocolWindow& theirs,
                                           absl::string_view peer) {
  const uint32_t low = std::max(own.min(), theirs.min());
  const uint32_t high = std::min(own.max(), theirs.max());
  if (theirs.min() >= 1 && low <= high) return high;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "PROTOCOL_WINDOW",
      absl::StrCat("no common protocol version: this side speaks ",
                   Describe(own), ", the ", peer, " ", Describe(theirs)),
      {{"own", Describe(own)}, {"theirs", Describe(theirs)}});
}

}  // namespace djinn
