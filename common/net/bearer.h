// Bearer tokens as call metadata: "authorization: Bearer TOKEN".
//
// Tokens are secrets: nothing here logs one or puts one into an error.
#ifndef COMMON_NET_BEARER_H_
#define COMMON_NET_BEARER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/hash/constant_time.h"  // IWYU pragma: export
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace djinn {

// The token as a key and a value.
std::pair<std::string, std::string> BearerMetadata(absl::string_view token);

// Adds the token to a call about to start. `token` must be printable ASCII, or
// gRPC refuses the call.
void PutBearer(absl::string_view token, grpc::ClientContext* context);

// The call's token. Unauthenticated (TOKEN_UNKNOWN) when there is none.
absl::StatusOr<std::string> ExtractBearer(
    const grpc::ServerContextBase& context);

}  // namespace djinn

#endif  // COMMON_NET_BEARER_H_
