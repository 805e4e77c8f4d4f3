#include "client_lib/session/model/remedies.h"

#include <array>
#include <ostream>
#include <string>
#include <vector>

#include "client_lib/session/model/links.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {

void PrintTo(Remedy remedy, std::ostream* out) {
  *out << std::array{"kTryAgain", "kTryAnother",
                     "kGiveUp"}[static_cast<size_t>(remedy)];
}

namespace {

using Code = absl::StatusCode;
constexpr Remedy kTryAgain = Remedy::kTryAgain;
constexpr Remedy kTryAnother = Remedy::kTryAnother;
constexpr Remedy kGiveUp = Remedy::kGiveUp;

struct Case {
  Code code;
  std::string reason;  // empty: none
  Remedy worker;
  Remedy recovery;
  Remedy coordinator;
  bool death = false;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      // Transports fail without a reason.
      {Code::kUnavailable, "", kTryAgain, kTryAgain, kTryAgain},
      {Code::kCancelled, "", kTryAgain, kTryAgain, kTryAgain},
      {Code::kInternal, "", kTryAgain, kTryAgain, kTryAgain},
      {Code::kUnknown, "", kTryAgain, kTryAgain, kTryAgain},
      {Code::kDeadlineExceeded, "", kTryAgain, kTryAgain, kTryAgain},
      // Other codes are somebody's decision.
      {Code::kOk, "", kGiveUp, kTryAgain, kTryAgain},
      {Code::kResourceExhausted, "", kGiveUp, kTryAgain, kTryAgain},
      {Code::kInvalidArgument, "", kGiveUp, kGiveUp, kTryAgain},
      {Code::kFailedPrecondition, "", kGiveUp, kGiveUp, kTryAgain},
      {Code::kUnauthenticated, "", kGiveUp, kTryAgain, kGiveUp},
      {Code::kPermissionDenied, "", kGiveUp, kTryAgain, kGiveUp},
      // A reason outweighs the code of a worker's error.
      {Code::kUnavailable, "TODAYS_NEWS", kGiveUp, kTryAgain, kTryAgain},
      {Code::kFailedPrecondition, "TODAYS_NEWS", kGiveUp, kTryAgain, kTryAgain},
      {Code::kInvalidArgument, "TODAYS_NEWS", kGiveUp, kGiveUp, kTryAgain},
      {Code::kPermissionDenied, "TODAYS_NEWS", kGiveUp, kTryAgain, kGiveUp},
      // Workers.
      {Code::kResourceExhausted, "TOO_MANY_CONNECTIONS", kTryAgain, kTryAgain,
       kTryAgain},
      {Code::kFailedPrecondition, "WRONG_INCARNATION", kTryAnother, kTryAgain,
       kTryAgain, /*death=*/true},
      {Code::kAborted, "WORKER_RESTARTED", kTryAnother, kTryAgain, kTryAgain,
       /*death=*/true},
      {Code::kAborted, "WORKER_LOST", kTryAnother, kTryAgain, kTryAgain,
       /*death=*/true},
      {Code::kAborted, "EXECUTOR_LOST", kTryAnother, kTryAgain, kTryAgain},
      {Code::kAborted, "EXECUTOR_LOST_IN_TURN", kTryAnother, kTryAgain,
       kTryAgain, /*death=*/true},
      {Code::kNotFound, "SESSION_LOST", kTryAnother, kTryAgain, kTryAgain},
      {Code::kUnavailable, "DRAINING", kTryAnother, kTryAgain, kTryAgain},
      {Code::kAborted, "LEASE_EXPIRED", kTryAnother, kTryAgain, kTryAgain},
      // An unknown lease is no lack of rights.
      {Code::kNotFound, "LEASE_UNKNOWN", kTryAnother, kTryAgain, kTryAgain},
      {Code::kAborted, kFallbackEnded, kTryAnother, kTryAgain, kTryAgain},
      {Code::kUnavailable, kSourceLost, kTryAnother, kTryAgain, kTryAgain},
      {Code::kUnavailable, kReplayRefused, kTryAnother, kTryAgain, kTryAgain},
      {Code::kDeadlineExceeded, kNoProgress, kTryAnother, kTryAgain, kTryAgain,
       /*death=*/true},
      {Code::kUnavailable, "OTHER_GENERATORS", kGiveUp, kTryAgain, kTryAgain},
      {Code::kUnavailable, "OTHER_NUMERICS", kGiveUp, kTryAgain, kTryAgain},
      {Code::kAborted, "QUOTA_RECLAIMED", kGiveUp, kTryAgain, kTryAgain},
      // The coordinator.
      {Code::kUnavailable, "NO_WORKER", kGiveUp, kTryAgain, kTryAgain},
      {Code::kDeadlineExceeded, "LEASE_TIMEOUT", kGiveUp, kTryAgain, kTryAgain},
      {Code::kUnavailable, "NOT_LEADER", kGiveUp, kTryAgain, kTryAgain},
      {Code::kUnavailable, "COORDINATOR_STOPPING", kGiveUp, kTryAgain,
       kTryAgain},
      // The largest worker may be about to return.
      {Code::kFailedPrecondition, "TOO_LARGE", kGiveUp, kTryAgain, kTryAgain},
      {Code::kInvalidArgument, "POLICY_UNKNOWN", kGiveUp, kGiveUp, kTryAgain},
      {Code::kUnauthenticated, "TOKEN_UNKNOWN", kGiveUp, kGiveUp, kGiveUp},
      {Code::kPermissionDenied, "SESSION_OF_OTHER_TENANT", kGiveUp, kGiveUp,
       kGiveUp},
      {Code::kFailedPrecondition, "SESSION_EXPIRED", kGiveUp, kGiveUp, kGiveUp},
      {Code::kAborted, "SESSION_ATTACHED_ELSEWHERE", kGiveUp, kGiveUp, kGiveUp},
      // A worker's breach does not speak against other workers.
      {Code::kInternal, "PROTOCOL_VIOLATION", kGiveUp, kTryAgain, kGiveUp},
      {Code::kInvalidArgument, "PROTOCOL_VIOLATION", kGiveUp, kGiveUp, kGiveUp},
  };
  return *cases;
}

TEST(RemediesTest, EveryErrorHasTheRemedyOfTheTable) {
  for (const Case& one : Cases()) {
    const absl::Status error = one.reason.empty()
                                   ? absl::Status(one.code, "text")
                                   : MakeError(one.code, one.reason, "text");
    SCOPED_TRACE(error.ToString() + " " + one.reason);
    EXPECT_EQ(AfterWorkerError(error), one.worker);
    EXPECT_EQ(AfterFailedRecovery(error), one.recovery);
    EXPECT_EQ(AfterCoordinatorError(error), one.coordinator);
    EXPECT_EQ(MeansDeath(error), one.death);
  }
}

TEST(RemediesTest, ARefusedDialMeansThatTheProcessEnded) {
  for (const char* const text :
       {"connect: Connection refused",
        "connect to /run/w0: No such file or directory (tried again for 1s)"}) {
    EXPECT_TRUE(MeansDeath(absl::UnavailableError(text)));
  }
  EXPECT_FALSE(MeansDeath(absl::UnavailableError("the stream broke")));
  // Something else was refused.
  EXPECT_FALSE(MeansDeath(
      MakeError(Code::kUnavailable, "DRAINING", "store: Connection refused")));
}

}  // namespace
}  // namespace djinn
