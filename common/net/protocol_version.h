// Defines the protocol version of this build, and its limits. Clients, workers
// and coordinators work together only when their versions are the same.
#ifndef COMMON_NET_PROTOCOL_VERSION_H_
#define COMMON_NET_PROTOCOL_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn {

inline constexpr uint32_t kProtocolVersion = 1;

// Most virtual devices of a session.
inline constexpr uint32_t kMaxVirtualDevices = 64;

// Returns FailedPrecondition (PROTOCOL_VERSION), which names both versions,
// unless `theirs` is kProtocolVersion. `peer` names the other side, such as
// "client". The version of a peer that states none is 0.
absl::Status CheckProtocolVersion(uint32_t theirs, absl::string_view peer);

}  // namespace djinn

#endif  // COMMON_NET_PROTOCOL_VERSION_H_
