#include "common/net/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"

namespace djinn {
namespace {

// The text appears twice in the trailers, once percent-encoded. Together with
// the payloads it stays well below kMaxMetadataBytes of channel_options.h.
constexpr size_t kMaxMessageBytes = 4 << 10;
constexpr size_t kMaxPayloadBytes = 12 << 10;

std::string Shortened(absl::string_view text) {
  if (text.size() <= kMaxMessageBytes) return std::string(text);
  return absl::StrCat(text.substr(0, kMaxMessageBytes), "...");
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Shortened(status.message()));
  size_t payload_bytes = 0;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (payload_bytes + value.size() > kMaxPayloadBytes) return;
    payload_bytes += value.size();
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(value));
  });
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()), details.message(),
      details.details().empty() ? std::string() : details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : details.details()) {
      result.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return result;
}

}  // namespace djinn
