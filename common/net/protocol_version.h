// Which protocol versions this build speaks, and the choice between two peers.
#ifndef COMMON_NET_PROTOCOL_VERSION_H_
#define COMMON_NET_PROTOCOL_VERSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/types.pb.h"

namespace djinn {

// Version 1: the first. Version 2: contents of more than a MiB have the hash of
// their blocks' hashes (Transfer.hash_high).
inline constexpr uint32_t kMinProtocolVersion = 2;
inline constexpr uint32_t kMaxProtocolVersion = 2;

v1::ProtocolWindow OwnProtocolWindow();

// The highest version in both windows. FailedPrecondition (PROTOCOL_WINDOW)
// names both windows; `peer` says who the other side is, such as "client".
absl::StatusOr<uint32_t> NegotiateProtocol(const v1::ProtocolWindow& own,
                                           const v1::ProtocolWindow& theirs,
                                           absl::string_view peer);

}  // namespace djinn

#endif  // COMMON_NET_PROTOCOL_VERSION_H_
