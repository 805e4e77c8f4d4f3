// Asks a coordinator how many workers have joined.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_
#define CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn {

// Workers that can be given to sessions now. The Admin service's errors;
// Unavailable while nobody listens.
absl::StatusOr<int> CountActiveWorkers(const std::string& coordinator_address,
                                       const std::string& admin_token,
                                       absl::Duration timeout);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_ADMIN_PROBE_H_
