#include "common/base/retry_after.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "common/base/proto_duration.h"
#include "google/rpc/retry_info.pb.h"

namespace djinn {
namespace {

constexpr absl::string_view kPayloadUrl =
    "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  if (status.ok() || delay == absl::InfiniteDuration()) return status;
  google::rpc::RetryInfo info;
  *info.mutable_retry_delay() =
      ToProtoDuration(std::max(delay, absl::ZeroDuration()));
  status.SetPayload(kPayloadUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  google::rpc::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload)) ||
      !info.has_retry_delay()) {
    return std::nullopt;
  }
  // A peer may send a negative delay.
  return std::max(FromProtoDuration(info.retry_delay()), absl::ZeroDuration());
}

}  // namespace djinn
