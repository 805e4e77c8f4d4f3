// Asks a coordinator how many workers have joined.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_
#define CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn {

// Returns the number of workers that sessions can get now, as the leader among
// the coordinators at the addresses, divided by commas, knows them. Returns the
// Admin service's errors, and Unavailable while no leader answers.
absl::StatusOr<int> CountActiveWorkers(const std::string& coordinator_addresses,
                                       const std::string& admin_token,
                                       absl::Duration timeout);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_
