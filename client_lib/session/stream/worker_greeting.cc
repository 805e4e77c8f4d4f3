#include "client_lib/session/stream/worker_greeting.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {
namespace {

// When the coordinator surely knows of the loss.
constexpr absl::Duration kRetryElsewhere = absl::Seconds(1);

}  // namespace

v1::ClientHello HelloFor(const std::string& session_id,
                         const v1::Lease& lease) {
  v1::ClientHello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_session_id(session_id);
  hello.set_session_epoch(lease.session_epoch());
  hello.set_lease_token(lease.token());
  hello.set_worker_incarnation(lease.worker_incarnation());
  return hello;
}

absl::Status CheckHello(const v1::WorkerHello& hello, const v1::Lease& lease) {
  if (hello.incarnation() != lease.worker_incarnation()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                     "the worker has restarted");
  }
  if (hello.worker_id() != lease.worker_id()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_WORKER",
                     absl::StrCat("the lease is for worker ", lease.worker_id(),
                                  "; worker ", hello.worker_id(),
                                  " answered at ", lease.worker_address()));
  }
  const v1::SessionLimits& limits = hello.limits();
  if (limits.max_outstanding() == 0 || limits.max_outstanding_bytes() == 0 ||
      limits.max_graphs() == 0 || limits.inline_bytes() < kLeastInlineBytes) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "LIMITS_TOO_LOW",
        absl::StrCat("the session's limits cannot be worked with: ",
                     limits.ShortDebugString()));
  }
  return absl::OkStatus();
}

absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, kProtocolViolation,
                   absl::StrCat("the worker broke the protocol: ", what));
}

bool IsDropped(const absl::Status& status) {
  return ErrorReason(status) == "SESSION_DROPPED";
}

absl::Status LossOf(const v1::Lease& lease, bool welcomed,
                    const absl::Status& cause) {
  const std::string cause_reason = ErrorReason(cause);
  const absl::string_view words =
      cause.ok() ? absl::string_view("it ended the stream") : cause.message();
  ErrorMetadata metadata = {{"worker", lease.worker_id()},
                            {"address", lease.worker_address()},
                            {"cause", cause_reason}};
  const std::optional<absl::Duration> retry = RetryAfter(cause);
  if (!welcomed && !cause_reason.empty()) {
    // The worker refused the session and did not fail, so the program can act
    // upon the worker's reason.
    return WithRetryAfter(
        MakeError(cause.code(), cause_reason,
                  absl::StrCat("worker ", lease.worker_id(), " at ",
                               lease.worker_address(), ": ", words),
                  std::move(metadata)),
        retry.value_or(absl::InfiniteDuration()));
  }
  // Another session may get another worker, but would break the protocol, too.
  return WithRetryAfter(
      MakeError(absl::StatusCode::kUnavailable, "WORKER_LOST",
                absl::StrCat("worker ", lease.worker_id(), " at ",
                             lease.worker_address(), " is lost: ", words),
                std::move(metadata)),
      cause_reason == kProtocolViolation ? absl::InfiniteDuration()
                                         : retry.value_or(kRetryElsewhere));
}

}  // namespace djinn
