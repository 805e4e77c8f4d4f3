// Tests sessions that lost a worker to a lender and ask for another one.
#include <string>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/reclaim_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;

// A session of red has the worker, and a large one waits for it.
class ClusterReadmissionTest : public ClusterReclaimTest {
 protected:
  ClusterReadmissionTest()
      : victim_(Fill("red", 1000)), waits_(OpenAndAsk("red", 900)) {}

  // Blue reclaims its own quota, and the session asks again at once.
  StreamId Reclaim() {
    const StreamId lender = OpenAndAsk("blue", 400);
    EXPECT_TRUE(Lost(victim_));
    Ask(victim_, 900);
    return lender;
  }
  // Has the worker drop the sessions that it was told to drop, and acknowledge
  // the leases that are placed there then.
  void Settle() {
    DropAndReport(1000);
    Execute(worker_, &w0_);
  }
  uint32_t Place(const StreamId& session) {
    return Explain(session).place_in_line();
  }
  std::string Preemptions(int count) {
    return "djinn_preemptions_total{preemptor_tenant=\"blue\","
           "victim_tenant=\"red\",reason=\"reclaim_nominal\"} " +
           std::to_string(count) + "\n";
  }

  StreamId victim_, waits_;
};

TEST_F(ClusterReadmissionTest, VictimIsFirstOfItsTenantBehindTheLender) {
  const StreamId lender = Reclaim();
  // This request fits nowhere now, but would precede the session.
  const StreamId other = OpenAndAsk("blue", 5000);
  EXPECT_EQ(Place(lender), 1u);
  EXPECT_EQ(Place(other), 2u);
  EXPECT_EQ(Place(victim_), 3u);
  EXPECT_EQ(Place(waits_), 4u);
  Settle();
  EXPECT_TRUE(Has(lender));
  EXPECT_EQ(Next(victim_), std::nullopt);
  sessions::Close(*cluster_, lender);
  Settle();
  EXPECT_TRUE(Has(victim_));
  EXPECT_EQ(Next(waits_), std::nullopt);
}

TEST_F(ClusterReadmissionTest, VictimIsBehindAHigherPriority) {
  Reclaim();
  v1::Urgency urgency;
  urgency.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
  ASSERT_TRUE(sessions::SetUrgency(*cluster_, waits_, urgency).ok());
  EXPECT_LT(Place(waits_), Place(victim_));
  ASSERT_TRUE(sessions::SetUrgency(*cluster_, victim_, urgency).ok());
  EXPECT_LT(Place(victim_), Place(waits_));
}

TEST_F(ClusterReadmissionTest, VictimIsFirstThreeTimes) {
  for (int times = 1; times <= 4; ++times) {
    SCOPED_TRACE(times);
    const StreamId lender = Reclaim();
    EXPECT_EQ(Place(victim_) < Place(waits_), times <= 3);
    Settle();
    EXPECT_TRUE(Has(lender));
    sessions::Close(*cluster_, lender);
    Settle();
    EXPECT_TRUE(Has(times <= 3 ? victim_ : waits_));
    if (times > 3) break;
    HeldBy(victim_, &w0_)->set_storage_bytes(1000);
    w0_.set_free_bytes(0);
    ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  }
  EXPECT_THAT(Metrics(), HasSubstr(Preemptions(4)));
}

TEST_F(ClusterReadmissionTest, VictimIsFirstUntilItHasAWorker) {
  const StreamId lender = Reclaim();
  Settle();
  EXPECT_TRUE(Has(lender));
  // The session's request is refused; it asks again.
  clock_.Advance(config_.lease_request_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Next(victim_)->has_refused());
  EXPECT_TRUE(Next(waits_)->has_refused());
  Ask(waits_, 900);
  Ask(victim_, 900);
  EXPECT_LT(Place(victim_), Place(waits_));
}

// The readmitted session does not take the lender's worker, and causes no
// further reclaim.
TEST_F(ClusterReadmissionTest, OneReclaimIsEnough) {
  const StreamId lender = Reclaim();
  const auto pass = [&] {
    for (int i = 0; i < 4; ++i) {
      clock_.Advance(absl::Seconds(1));
      ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
      coordinator::Tick(*cluster_);
    }
  };
  pass();
  EXPECT_THAT(Metrics(), HasSubstr(Preemptions(1)));
  EXPECT_EQ(Place(victim_), 2u);
  Settle();
  EXPECT_TRUE(Has(lender));
  pass();
  EXPECT_EQ(Next(lender), std::nullopt);
  EXPECT_EQ(Next(victim_), std::nullopt);
  EXPECT_THAT(Metrics(), HasSubstr(Preemptions(1)));
}

}  // namespace
}  // namespace djinn::coordinator
