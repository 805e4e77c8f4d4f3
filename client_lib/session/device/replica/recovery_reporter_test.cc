#include "client_lib/session/device/replica/recovery_reporter.h"

#include <vector>

#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(RecoveryReporterTest, CompleteReportSurvivesTheNextLoss) {
  RecoveryReporter reporter;
  reporter.Begin(0, 0, "w0", absl::AbortedError("first"), absl::Seconds(1));
  reporter.Sent("w1", 7, 0, absl::Seconds(2), absl::Seconds(3));
  reporter.Executed(absl::Seconds(4));
  reporter.Begin(0, 0, "w1", absl::AbortedError("second"), absl::Seconds(5));
  ASSERT_TRUE(reporter.complete());
  const std::vector<v1::RecoveryReport> first = reporter.Take();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].from_worker_id(), "w0");
  EXPECT_EQ(first[0].to_worker_id(), "w1");
  EXPECT_EQ(first[0].cause().message(), "first");
  EXPECT_EQ(first[0].replayed_nodes(), 7u);
  EXPECT_EQ(first[0].total_time().seconds(), 3);
  EXPECT_FALSE(reporter.complete());
  reporter.Failed(absl::AbortedError("gone"), absl::Seconds(7));
  const std::vector<v1::RecoveryReport> second = reporter.Take();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].from_worker_id(), "w1");
  EXPECT_EQ(second[0].failure().message(), "gone");
  EXPECT_EQ(second[0].total_time().seconds(), 2);
}

TEST(RecoveryReporterTest, NothingIsReportedWithoutALoss) {
  RecoveryReporter reporter;
  reporter.Executed(absl::Seconds(1));
  reporter.Failed(absl::AbortedError("gone"), absl::Seconds(2));
  EXPECT_FALSE(reporter.complete());
  EXPECT_TRUE(reporter.Take().empty());
}

}  // namespace
}  // namespace djinn
