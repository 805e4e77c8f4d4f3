// Tests the limit on what tenants lose by reclaims.
#include <string>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/reclaim_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;

// The limit is a minute of device time per minute.
class ClusterReclaimLimitTest : public ClusterReclaimTest {
 protected:
  ClusterReclaimLimitTest() {
    config_.reclaim_loss_limit = absl::Minutes(1);
    config_.lease_request_timeout = absl::Minutes(5);
    config_.line_patience = absl::Minutes(5);
    Restart();
    Lend(0, 6);
    worker_ = Join(w0_);
  }
  StreamId FillAndWork(uint64_t bytes, int seconds,
                       const std::string& tenant = "red") {
    const StreamId session = Fill(tenant, bytes);
    Work(session, absl::Seconds(seconds));
    return session;
  }
  // Has the worker apply its desired state, after which it has no free memory.
  StreamId Serve(const StreamId& lender) {
    DropAndReport(200);
    Execute(worker_, &w0_);
    EXPECT_TRUE(Has(lender));
    w0_.set_free_bytes(0);
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
    return lender;
  }
  void Pass(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(5)) {
      clock_.Advance(absl::Seconds(5));
      ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
      coordinator::Tick(*cluster_);
    }
  }
};

TEST_F(ClusterReclaimLimitTest, CostlyReclaimWaits) {
  const StreamId a = FillAndWork(200, 10), b = FillAndWork(400, 55),
                 c = FillAndWork(400, 58);
  Serve(OpenAndAsk("blue", 150));
  EXPECT_TRUE(Lost(a));
  const StreamId lender = OpenAndAsk("blue", 350);
  EXPECT_EQ(Explain(lender).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Explain(lender).gate().unblocked_by(),
            "time: by what others took back, tenant red has lost 10s of device "
            "time in the last minute, of 1m that it may lose");
  Pass(absl::Seconds(55));
  EXPECT_THAT(Explain(lender).gate().unblocked_by(), HasSubstr("lost 10s"));
  EXPECT_EQ(Next(b), std::nullopt);
  Pass(absl::Seconds(5));
  EXPECT_TRUE(Lost(b));
  EXPECT_EQ(Next(c), std::nullopt);
  EXPECT_EQ(Explain(lender).gate().unblocked_by(),
            "a report of w0, where others give back what they borrowed");
}

TEST_F(ClusterReclaimLimitTest, QuotaWaitsLikewise) {
  Lend(0, 3);
  const StreamId a = FillAndWork(100, 10), b = FillAndWork(100, 55),
                 c = FillAndWork(100, 58);
  OpenAndAsk("blue", 10);
  EXPECT_TRUE(Lost(a));
  const StreamId lender = OpenAndAsk("blue", 10);
  EXPECT_EQ(Explain(lender).gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_THAT(Explain(lender).gate().unblocked_by(),
              HasSubstr("time: by what others took back, tenant red has lost"));
  Execute(worker_, &w0_);
  Pass(absl::Seconds(55));
  EXPECT_EQ(Explain(lender).gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(Next(b), std::nullopt);
  Pass(absl::Seconds(5));
  EXPECT_TRUE(Lost(b));
  EXPECT_EQ(Next(c), std::nullopt);
  EXPECT_EQ(Explain(lender).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
}

// A lender comes and goes all the time. The borrower is placed again each time,
// and uses forty seconds of device time.
TEST_F(ClusterReclaimLimitTest, ReclaimsAndReadmissionsDoNotGoRoundAllTheTime) {
  const StreamId victim = FillAndWork(1000, 40);
  StreamId lender = OpenAndAsk("blue", 400);
  int reclaims = 0;
  for (int i = 0; i < 120; ++i) {
    Pass(absl::Seconds(5));
    const auto next = Next(victim);
    if (!next.has_value()) continue;
    ++reclaims;
    ASSERT_EQ(next->ended().reason(), "QUOTA_RECLAIMED");
    Ask(victim, 900);
    DropAndReport(1000);
    Execute(worker_, &w0_);
    ASSERT_TRUE(Has(lender));
    sessions::Close(*cluster_, lender);
    DropAndReport(1000);
    Execute(worker_, &w0_);
    ASSERT_TRUE(Has(victim));
    HeldBy(victim, &w0_)->set_storage_bytes(1000);
    w0_.set_free_bytes(0);
    Work(victim, absl::Seconds(40));
    lender = OpenAndAsk("blue", 400);
  }
  // In ten minutes, there is one reclaim per minute.
  EXPECT_GE(reclaims, 9);
  EXPECT_LE(reclaims, 11);
}

}  // namespace
}  // namespace djinn::coordinator
