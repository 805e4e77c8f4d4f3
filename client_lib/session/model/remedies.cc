#include "client_lib/session/model/remedies.h"

#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/model/links.h"
#include "common/base/error.h"

namespace djinn {
namespace {

constexpr Remedy kTryAgain = Remedy::kTryAgain;
constexpr Remedy kTryAnother = Remedy::kTryAnother;
constexpr Remedy kGiveUp = Remedy::kGiveUp;
// The remedy follows from the code.
constexpr std::nullopt_t kByCode = std::nullopt;

struct Row {
  absl::string_view reason;
  std::optional<Remedy> worker;
  std::optional<Remedy> recovery;
  std::optional<Remedy> coordinator;
  // See MeansDeath().
  bool death = false;
};

constexpr Row kRows[] = {
    // The worker is busy.
    {"TOO_MANY_CONNECTIONS", kTryAgain, kByCode, kByCode},
    // The process that had the session is gone.
    {"WRONG_INCARNATION", kTryAnother, kTryAgain, kByCode, /*death=*/true},
    {"WORKER_RESTARTED", kTryAnother, kTryAgain, kByCode, /*death=*/true},
    {"WORKER_LOST", kTryAnother, kTryAgain, kByCode, /*death=*/true},
    // The worker lives, and knows that it executed none of the session's
    // messages when the process ended.
    {"EXECUTOR_LOST", kTryAnother, kTryAgain, kByCode},
    {"EXECUTOR_LOST_IN_TURN", kTryAnother, kTryAgain, kByCode, /*death=*/true},
    // A run that hangs would hang at each further worker.
    {kNoProgress, kTryAnother, kTryAgain, kByCode, /*death=*/true},
    // The worker does not serve the session any more.
    {"SESSION_LOST", kTryAnother, kTryAgain, kByCode},
    {"DRAINING", kTryAnother, kTryAgain, kByCode},
    {"LEASE_UNKNOWN", kTryAnother, kTryAgain, kByCode},
    {"LEASE_EXPIRED", kTryAnother, kTryAgain, kByCode},
    // A worker of the cluster is free again.
    {kFallbackEnded, kTryAnother, kTryAgain, kByCode},
    // The worker is well, but waits for a value that does not come.
    {kSourceLost, kTryAnother, kTryAgain, kByCode},
    // The worker is well, but lacks memory for the replay.
    {kReplayRefused, kTryAnother, kTryAgain, kByCode},
    // No worker is large enough. The one that was may be about to return.
    {"TOO_LARGE", kGiveUp, kTryAgain, kByCode},
    // No worker can take the device.
    {"POLICY_UNKNOWN", kGiveUp, kGiveUp, kByCode},
    // The program may not use the session any more.
    {"TOKEN_UNKNOWN", kGiveUp, kGiveUp, kGiveUp},
    {"SESSION_OF_OTHER_TENANT", kGiveUp, kGiveUp, kGiveUp},
    // The session has ended, or belongs to another process of the program.
    {"SESSION_EXPIRED", kGiveUp, kGiveUp, kGiveUp},
    {"SESSION_ATTACHED_ELSEWHERE", kGiveUp, kGiveUp, kGiveUp},
    // The two sides understand each other differently. Another worker may have
    // another version, but there is one coordinator.
    {"PROTOCOL_VIOLATION", kGiveUp, kByCode, kGiveUp},
};

const Row* Find(absl::string_view reason) {
  if (reason.empty()) return nullptr;
  const auto* const row = absl::c_find_if(
      kRows, [&](const Row& one) { return one.reason == reason; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

Remedy AfterWorkerError(const absl::Status& error) {
  const std::string reason = ErrorReason(error);
  const Row* const row = Find(reason);
  if (row != nullptr && row->worker.has_value()) return *row->worker;
  // A reason is the worker's own word, whereas transports fail without one.
  if (!reason.empty()) return kGiveUp;
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
      return kTryAgain;
    default:
      return kGiveUp;
  }
}

bool MeansDeath(const absl::Status& error) {
  const Row* const row = Find(ErrorReason(error));
  return row == nullptr ? IsRefusedDial(error) : row->death;
}

bool IsRefusedDial(const absl::Status& error) {
  return absl::StrContains(error.message(), "Connection refused") ||
         absl::StrContains(error.message(), "No such file or directory");
}

Remedy AfterFailedRecovery(const absl::Status& error) {
  const std::string reason = ErrorReason(error);
  const Row* const row = Find(reason);
  if (row != nullptr && row->recovery.has_value()) return *row->recovery;
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kGiveUp;
    case absl::StatusCode::kFailedPrecondition:
      // The client itself found that it cannot go on.
      return reason.empty() ? kGiveUp : kTryAgain;
    default:
      return kTryAgain;
  }
}

Remedy AfterCoordinatorError(const absl::Status& error) {
  const Row* const row = Find(ErrorReason(error));
  if (row != nullptr && row->coordinator.has_value()) return *row->coordinator;
  switch (error.code()) {
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kGiveUp;
    default:
      return kTryAgain;
  }
}

}  // namespace djinn
