#include "coordinator/ctl/exit_status.h"

#include "common/error.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

TEST(ExitStatusTest, TellsRefusalsFromSilence) {
  EXPECT_EQ(ExitStatus(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kNotFound, "WORKER_UNKNOWN",
                                 "there is no \"w9\"")),
            1);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kUnavailable,
                                 "COORDINATOR_STOPPING", "it stops")),
            1);
  // An older coordinator answers, too.
  EXPECT_EQ(ExitStatus(absl::UnimplementedError("")), 1);
  EXPECT_EQ(ExitStatus(absl::UnavailableError("connection refused")), 3);
  EXPECT_EQ(ExitStatus(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kFailedPrecondition,
                                 "TLS_HANDSHAKE", "wrong authority")),
            3);
}

}  // namespace
}  // namespace djinn::ctl
