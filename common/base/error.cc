#include "common/base/error.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "common/base/retry_after.h"
#include "google/rpc/quota_failure.pb.h"

namespace djinn {

absl::Status StatusFromDetail(const v1::ErrorDetail& detail) {
  const std::string error_id = absl::StrCat(absl::Hex(detail.error_id()));
  std::string text = detail.message();
  ErrorMetadata metadata = {{"error_id", error_id},
                            {"worker", detail.worker_id()},
                            {"tenant", detail.tenant()}};
  if (!detail.operator_name().empty()) {
    absl::StrAppend(&text, " [in ", detail.operator_name());
    metadata.emplace_back("operator", detail.operator_name());
    if (detail.has_node()) {
      absl::StrAppend(&text, " at node ", detail.node());
      metadata.emplace_back("node", absl::StrCat(detail.node()));
    }
    if (!detail.operands().empty()) {
      absl::StrAppend(&text, " on ", detail.operands());
      metadata.emplace_back("operands", detail.operands());
    }
    absl::StrAppend(&text, "]");
  }
  absl::StrAppend(&text, " (worker ", detail.worker_id(), ", tenant ",
                  detail.tenant());
  if (detail.lane() != 0) {
    absl::StrAppend(&text, ", lane ", detail.lane());
    metadata.emplace_back("lane", absl::StrCat(detail.lane()));
  }
  absl::StrAppend(&text, ", error ", error_id, ")");
  // The detail comes from a peer. Its code may be OK, or none that exists.
  const bool known =
      detail.code() > 0 &&
      detail.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status status =
      MakeError(known ? static_cast<absl::StatusCode>(detail.code())
                      : absl::StatusCode::kInternal,
                detail.reason(), text, std::move(metadata));
  if (!detail.has_retry_after()) return status;
  return WithRetryAfter(std::move(status),
                        FromProtoDuration(detail.retry_after()));
}

void FillDetail(const absl::Status& status, v1::ErrorDetail* detail) {
  detail->set_code(static_cast<int>(status.code()));
  const std::string reason = ErrorReason(status);
  detail->set_reason(reason.empty() ? "INTERNAL" : reason);
  detail->set_message(std::string(status.message()));
  const std::optional<absl::Duration> retry_after = RetryAfter(status);
  if (retry_after.has_value()) {
    *detail->mutable_retry_after() = ToProtoDuration(*retry_after);
  }
}

absl::Status WithQuotaFailure(absl::Status status, absl::string_view tenant) {
  if (status.ok()) return status;
  google::rpc::QuotaFailure failure;
  google::rpc::QuotaFailure::Violation* const violation =
      failure.add_violations();
  violation->set_subject(absl::StrCat("tenant:", tenant));
  violation->set_description(std::string(status.message()));
  status.SetPayload("type.googleapis.com/google.rpc.QuotaFailure",
                    absl::Cord(failure.SerializeAsString()));
  return status;
}

}  // namespace djinn
