#include "common/net/bearer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {
namespace {

constexpr char kKey[] = "authorization";
constexpr absl::string_view kScheme = "Bearer ";

}  // namespace

std::pair<std::string, std::string> BearerMetadata(absl::string_view token) {
  return {kKey, absl::StrCat(kScheme, token)};
}

void PutBearer(absl::string_view token, grpc::ClientContext* context) {
  const auto [key, value] = BearerMetadata(token);
  context->AddMetadata(key, value);
}

absl::StatusOr<std::string> ExtractBearer(
    const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find(kKey);
  if (found != context.client_metadata().end()) {
    const absl::string_view value(found->second.data(), found->second.size());
    if (absl::StartsWithIgnoreCase(value, kScheme)) {
      return std::string(value.substr(kScheme.size()));
    }
  }
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                   "the call carries no \"authorization: Bearer\" metadata");
}

void NoteProven(const grpc::ServerContextBase& context,
                UnprovenConnections* unproven) {
  if (unproven != nullptr) unproven->NoteProven(context.peer());
}

}  // namespace djinn
