// Limits on what a session may have or say at once, beside kMaxVirtualDevices.
#ifndef COORDINATOR_TABLES_CLUSTER_LIMITS_H_
#define COORDINATOR_TABLES_CLUSTER_LIMITS_H_

#include <cstdint>

#include "common/net/protocol_version.h"  // IWYU pragma: export

namespace djinn::coordinator {

// Most members of one virtual device.
inline constexpr uint32_t kMaxMembers = 16;
// The limit of LeaseRequest.contents in session.proto.
inline constexpr int kMaxContentHints = 64;

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_LIMITS_H_
