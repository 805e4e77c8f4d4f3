// Implements the link of a session to the coordinator over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
#define CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/session/model/links.h"
#include "client_lib/transport/session_urgency.h"
#include "common/net/tls.h"

namespace djinn {

// Makes a link to the coordinator at `address` ("host:port" or "unix:PATH", or
// several of them, divided by commas) with the tenant's token. The link
// attaches when it is opened. When the stream breaks, the link attaches again
// under the same session, at each address in turn, with growing pauses after
// each round, until it is closed. It ignores coordinators whose term has
// passed. Lease requests survive a break. Graphs sent just before a break may
// be lost, which is why CoordinatorEvents reports each new attachment. After
// the errors that session.proto calls final, the link gives up and lease
// requests fail with that error.
//
// If `urgency` is not null, the link sends its priority now and after each
// change. If `placement_policy` is not empty, the link sends it; if it is
// empty, the tenant's policy applies.
//
// If `session_id` is not empty, the link attaches to that session instead of
// opening one. A coordinator that does not know the session takes it as one
// that outlived an earlier coordinator.
//
// Returns MakeChannel()'s errors.
absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeGrpcCoordinatorLink(
    const std::string& address, const std::string& token,
    const ChannelSecurity& security = {},
    std::shared_ptr<SessionUrgency> urgency = nullptr,
    std::string placement_policy = "", std::string session_id = "");

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
