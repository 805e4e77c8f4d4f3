// The session stream to the coordinator over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
#define CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/session/model/coordinator_link.h"
#include "client_lib/transport/session_urgency.h"
#include "common/net/tls.h"

namespace djinn {

// A link to the coordinator at `address` ("host:port" or "unix:PATH") with the
// tenant's token. Attaches when opened; when the stream breaks it attaches
// again under the same session, with growing pauses, until it is closed. Lease
// requests outlive breaks; graphs sent just before one may be lost, which
// is why CoordinatorEvents hears of attaching again. Gives up where
// session.proto says so: lease requests then fail with that error.
//
// What `urgency` says, now and later, is told to the coordinator; null:
// nothing. So is `placement_policy`; empty: the tenant's.
//
// MakeChannel()'s errors.
absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeGrpcCoordinatorLink(
    const std::string& address, const std::string& token,
    const ChannelSecurity& security = {},
    std::shared_ptr<SessionUrgency> urgency = nullptr,
    std::string placement_policy = "");

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
