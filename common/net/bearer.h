// Bearer tokens as call metadata: "authorization: Bearer TOKEN".
//
// Tokens are secrets: nothing here logs one or puts one into an error.
#ifndef COMMON_NET_BEARER_H_
#define COMMON_NET_BEARER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace djinn {

// Adds the token to a call about to start. `token` must be printable ASCII, or
// gRPC refuses the call.
void PutBearer(absl::string_view token, grpc::ClientContext* context);

// The call's token. Unauthenticated (TOKEN_UNKNOWN) when there is none.
absl::StatusOr<std::string> ExtractBearer(
    const grpc::ServerContextBase& context);

// Compares in a time that tells neither where the two differ nor how long the
// expected one is.
bool TokensEqual(absl::string_view a, absl::string_view b);

}  // namespace djinn

#endif  // COMMON_NET_BEARER_H_
