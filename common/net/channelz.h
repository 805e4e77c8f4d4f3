// Serves channelz, gRPC's data on the process' channels, servers and sockets,
// to operators only.
//
// gRPC's own service answers every caller, and its answers contain the
// addresses of other clients. A guard therefore refuses calls without the admin
// token with Unauthenticated (TOKEN_UNKNOWN).
#ifndef COMMON_NET_CHANNELZ_H_
#define COMMON_NET_CHANNELZ_H_

#include <memory>
#include <string>

#include "grpcpp/support/server_interceptor.h"

namespace djinn {

// Adds the service to every server that this process builds from now on. One
// call is enough. Each of these servers needs a guard.
void EnableChannelz();

// Returns a guard that admits calls with the token to channelz. An empty token
// admits none. Other services are not affected.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeChannelzGuard(std::string admin_token);

}  // namespace djinn

#endif  // COMMON_NET_CHANNELZ_H_
