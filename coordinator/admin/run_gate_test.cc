#include "coordinator/admin/run_gate.h"

#include "absl/time/time.h"
#include "common/base/proto_duration.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

class RunGateTest : public testing::Test {
 protected:
  RunGateTest() {
    run_.set_state(v1::RunRecord::WAITING);
    *run_.mutable_gate_time() = ToProtoDuration(absl::Milliseconds(1611));
  }
  v1::PlacementGate Describe() {
    v1::PlacementGate gate;
    held_ = DescribeRunGate(run_, {&lease_, "red", "more credits"}, &gate);
    return gate;
  }

  v1::RunRecord run_;
  v1::LeaseRuns lease_;
  bool held_ = false;
};

TEST_F(RunGateTest, ATurnNamesWhoIsServed) {
  run_.set_gate(v1::RUN_GATE_OTHER_TENANTS);
  lease_.mutable_wait()->set_what(v1::MessageWait::TURN);
  lease_.mutable_wait()->set_served_tenant("blue");
  lease_.mutable_wait()->set_served_session_id("5e6f7a8b");
  lease_.mutable_wait()->mutable_ahead()->set_seconds(3);
  const v1::PlacementGate gate = Describe();
  EXPECT_TRUE(held_);
  EXPECT_EQ(gate.reason(), "WAITS_FOR_TURN");
  EXPECT_EQ(gate.message(),
            "it has waited 1.611s for its turn: session 5e6f7a8b of tenant "
            "blue is served, 3s of work are ahead");
  EXPECT_EQ(gate.unblocked_by(),
            "its turn, after those that have had less, or are more urgent");
}

TEST_F(RunGateTest, MessagesOfItsSessionAreCounted) {
  run_.set_gate(v1::RUN_GATE_SESSION);
  run_.set_messages_ahead(1);
  *run_.mutable_gate_time() = ToProtoDuration(absl::Nanoseconds(12'345));
  EXPECT_EQ(Describe().message(),
            "1 message of its session is ahead of it; its session has kept it "
            "waiting 12us for earlier messages of its session");
  run_.set_messages_ahead(2);
  EXPECT_EQ(Describe().reason(), "WAITS_FOR_SESSION");
  EXPECT_EQ(Describe().message().substr(0, 42),
            "2 messages of its session are ahead of it;");
}

TEST_F(RunGateTest, EveryGateSaysWhatOpensIt) {
  for (int gate = 1; gate < v1::RunGate_ARRAYSIZE; ++gate) {
    run_.set_gate(static_cast<v1::RunGate>(gate));
    const v1::PlacementGate described = Describe();
    EXPECT_TRUE(held_) << gate;
    EXPECT_FALSE(described.reason().empty()) << gate;
    EXPECT_FALSE(described.unblocked_by().empty()) << gate;
  }
}

TEST_F(RunGateTest, AnInvalidGateSaysNothing) {
  run_.set_gate(static_cast<v1::RunGate>(99));
  Describe();
  EXPECT_FALSE(held_);
}

TEST_F(RunGateTest, CreditIsExplained) {
  run_.set_gate(v1::RUN_GATE_CREDIT);
  const v1::PlacementGate gate = Describe();
  EXPECT_EQ(gate.reason(), "OUT_OF_CREDIT");
  EXPECT_EQ(gate.message(),
            "it has waited 1.611s for credit: tenant red has none left for "
            "this lease");
  EXPECT_EQ(gate.unblocked_by(), "more credits");
}

TEST_F(RunGateTest, ATurnWithoutCreditIsNoTurn) {
  run_.set_gate(v1::RUN_GATE_WORKER);
  lease_.set_out_of_credit(true);
  EXPECT_EQ(Describe().reason(), "OUT_OF_CREDIT");
}

// The worker's report about the session may be later than the run's.
TEST_F(RunGateTest, AWaitForSomethingElseIsLeftOut) {
  run_.set_gate(v1::RUN_GATE_VALUE);
  lease_.mutable_wait()->set_what(v1::MessageWait::TURN);
  EXPECT_EQ(Describe().message(),
            "it has waited 1.611s for a value from another worker");
  lease_.mutable_wait()->set_what(v1::MessageWait::VALUE);
  lease_.mutable_wait()->set_worker_id("w3");
  EXPECT_EQ(Describe().unblocked_by(), "worker w3, which has it");
}

TEST_F(RunGateTest, PreemptedRunIsHeldByItsPreemptor) {
  run_.set_state(v1::RunRecord::IN_SERVICE);
  Describe();
  EXPECT_FALSE(held_);
  run_.mutable_preempted_by()->set_tenant("blue");
  run_.mutable_preempted_by()->set_session_id("5e6f7a8b");
  run_.mutable_preempted_by()->set_reason("deadline");
  *run_.mutable_preempted_by()->mutable_time() =
      ToProtoDuration(absl::Milliseconds(300));
  const v1::PlacementGate gate = Describe();
  EXPECT_TRUE(held_);
  EXPECT_EQ(gate.reason(), "YIELDED");
  EXPECT_EQ(gate.message(),
            "it has been preempted for 300ms by session 5e6f7a8b of tenant "
            "blue (deadline)");
}

TEST_F(RunGateTest, CompletedRunHasNoGate) {
  run_.set_state(v1::RunRecord::COMPLETED);
  run_.set_gate(v1::RUN_GATE_BYTES);
  Describe();
  EXPECT_FALSE(held_);
}

}  // namespace
}  // namespace djinn::coordinator
