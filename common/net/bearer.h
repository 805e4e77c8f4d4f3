// Carries bearer tokens in call metadata: "authorization: Bearer TOKEN".
//
// Tokens are secrets: no function here logs one or puts one into an error.
#ifndef COMMON_NET_BEARER_H_
#define COMMON_NET_BEARER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/hash/hash.h"  // IWYU pragma: export
#include "common/net/unproven_connections.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace djinn {

// Returns the metadata's key and value for the token.
std::pair<std::string, std::string> BearerMetadata(absl::string_view token);

// Adds the token to a call that has not started. `token` must be printable
// ASCII, or gRPC refuses the call.
void PutBearer(absl::string_view token, grpc::ClientContext* context);

// Returns the call's token, or Unauthenticated (TOKEN_UNKNOWN) when it has
// none.
absl::StatusOr<std::string> ExtractBearer(
    const grpc::ServerContextBase& context);

// Tells `unproven` that the call's peer has shown a token, which was accepted.
// Null: nothing happens.
void NoteProven(const grpc::ServerContextBase& context,
                UnprovenConnections* unproven);

}  // namespace djinn

#endif  // COMMON_NET_BEARER_H_
