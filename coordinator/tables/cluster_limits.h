// Limits on what a session may have or say at once.
#ifndef COORDINATOR_TABLES_CLUSTER_LIMITS_H_
#define COORDINATOR_TABLES_CLUSTER_LIMITS_H_

#include <cstdint>

namespace djinn::coordinator {

inline constexpr uint32_t kMaxVirtualDevices = 64;
// Most members of one virtual device.
inline constexpr uint32_t kMaxMembers = 16;
// The limit of LeaseRequest.contents in session.proto.
inline constexpr int kMaxContentHints = 64;

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_LIMITS_H_
