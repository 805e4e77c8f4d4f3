#include "common/base/quota_failure.h"

#include <string>

#include "absl/strings/cord.h"
#include "common/base/error.h"
#include "google/rpc/quota_failure.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(QuotaFailureTest, StandsBesideTheReason) {
  const absl::Status status = WithQuotaFailure(
      MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                "tenant red has 4 sessions, its limit is 4"),
      "red");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "TOO_MANY_SESSIONS");
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.QuotaFailure");
  ASSERT_TRUE(payload.has_value());
  google::rpc::QuotaFailure failure;
  ASSERT_TRUE(failure.ParseFromString(std::string(*payload)));
  ASSERT_EQ(failure.violations_size(), 1);
  EXPECT_EQ(failure.violations(0).subject(), "tenant:red");
  EXPECT_EQ(failure.violations(0).description(),
            "tenant red has 4 sessions, its limit is 4");
}

TEST(QuotaFailureTest, NothingFailsWhereNothingFailed) {
  EXPECT_EQ(WithQuotaFailure(absl::OkStatus(), "red"), absl::OkStatus());
}

}  // namespace
}  // namespace djinn
