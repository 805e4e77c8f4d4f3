// channelz: what gRPC knows of a process' channels, servers and sockets, for
// operators only.
//
// gRPC's own service tells anybody who asks, and what it tells are the
// addresses of other clients. So a guard stands before it: a call without the
// admin token gets Unauthenticated (TOKEN_UNKNOWN) and no data.
#ifndef COMMON_NET_CHANNELZ_H_
#define COMMON_NET_CHANNELZ_H_

#include <memory>
#include <string>

#include "grpcpp/support/server_interceptor.h"

namespace djinn {

// Adds the service to every server that is built from now on in this process;
// once is enough. Each of them needs a guard.
void EnableChannelz();

// Lets calls with the token through to channelz, with an empty one none; other
// services are not touched.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeChannelzGuard(std::string admin_token);

}  // namespace djinn

#endif  // COMMON_NET_CHANNELZ_H_
