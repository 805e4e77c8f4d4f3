// Implements the link of a session to the coordinator over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
#define CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/session/model/links.h"
#include "client_lib/transport/session_urgency.h"
#include "common/net/tls/tls.h"

namespace djinn {

struct CoordinatorLinkOptions {
  ChannelSecurity security;
  // If not null, the link sends its priority now and after each change.
  std::shared_ptr<SessionUrgency> urgency;
  // If empty, the tenant's policy applies.
  std::string placement_policy;
  // If not empty, the link attaches to this session instead of opening one. A
  // coordinator that does not know the session takes it as one that outlived an
  // earlier coordinator.
  std::string session_id;
};

// Makes a link to the coordinator at `address` ("host:port" or "unix:PATH", or
// several of them, divided by commas) with the tenant's token. The link
// attaches when it is opened. When the stream breaks, the link attaches again
// under the same session, at each address in turn, with growing pauses after
// each round, until it is closed. It ignores coordinators whose term has
// passed. Lease requests survive a break. Graphs sent just before a break may
// be lost, which is why CoordinatorEvents reports each new attachment. After
// the errors that session.proto calls final, the link gives up and lease
// requests fail with that error. CancelRequests() also ends an Open() that is
// under way.
//
// Returns MakeChannel()'s errors.
absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeGrpcCoordinatorLink(
    const std::string& address, const std::string& token,
    CoordinatorLinkOptions options = {});

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_COORDINATOR_LINK_H_
