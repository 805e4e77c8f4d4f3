// Tests which borrowers give back quota, or room at a worker, and for whom.
#include <memory>
#include <string>

#include "common/base/proto_duration.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/reclaim_fixture.h"
#include "gmock/gmock.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ClusterReclaimTest, AFullWorkersMemoryIsTakenBackFromWhoLosesLeast) {
  const StreamId idle = Fill("red", 500), busy = Fill("red", 500);
  Work(idle, absl::Seconds(2));
  Work(busy, absl::Seconds(90));
  const StreamId lender = OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(idle));
  EXPECT_EQ(Next(busy), std::nullopt);
  EXPECT_EQ(Explain(lender).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Explain(lender).gate().unblocked_by(),
            "a report of w0, where others give back what they borrowed");
  DropAndReport(500);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(lender));
  EXPECT_EQ(Next(busy), std::nullopt);
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_preemption_lost_device_seconds_total 2\n"));
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_preemptions_total{preemptor_tenant=\"blue\","
                        "victim_tenant=\"red\",reason=\"reclaim_nominal\"} "
                        "1\n"));
}

TEST_F(ClusterReclaimTest, NextVictimYieldsOnlyAfterTheWorkerHasReported) {
  const StreamId a = Fill("red", 500), b = Fill("red", 500);
  Work(b, absl::Seconds(90));
  const StreamId lender = OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(a));
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Seconds(2));
    // The worker reports a state from before it was notified.
    ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
    coordinator::Tick(*cluster_);
  }
  EXPECT_EQ(Next(b), std::nullopt);
  // The worker has dropped the session, but others have taken the room
  // meanwhile.
  DropAndReport(100);
  clock_.Advance(absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Lost(b));
  DropAndReport(600);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(lender));
}

TEST_F(ClusterReclaimTest, ReclaimedRoomIsKeptForTheLender) {
  Fill("red", 1000);
  const StreamId waits = OpenAndAsk("green", 300);
  const StreamId lender = OpenAndAsk("blue", 400);
  const auto urgent = [&](const StreamId& session) {
    v1::Urgency urgency;
    urgency.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
    EXPECT_TRUE(sessions::SetUrgency(*cluster_, session, urgency).ok());
  };
  urgent(waits);
  w0_.set_free_bytes(1000);
  // The worker has not dropped any session yet.
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  EXPECT_EQ(Explain(lender).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  coordinator::Tick(*cluster_);
  // The remaining room is available to all again.
  EXPECT_EQ(Explain(waits).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  EXPECT_EQ(Explain(OpenAndAsk("green", 400)).gate().reason(), "NO_CAPACITY");
}

TEST_F(ClusterReclaimTest, LaterRequestWaitsBehindAReclaim) {
  Fill("red", 500);
  Fill("red", 500);
  const StreamId lender = OpenAndAsk("blue", 800);
  w0_.set_free_bytes(500);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId late = OpenAndAsk("green", 100);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(late).gate().reason(), "WAITS_IN_LINE");
  EXPECT_EQ(Explain(late).gate().message(),
            "worker w0, which has the memory, is kept for whom others gave up "
            "room there");
  // The lender's request ends, and so does its reservation.
  sessions::Close(*cluster_, lender);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(late).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
}

TEST_F(ClusterReclaimTest, OnlyWhatIsItsOwnIsTakenBack) {
  config_.tenants.push_back(TestTenant("pool"));
  config_.tenants[3].quotas[0].nominal = 4 * kGiB;
  config_.tenants[3].cohort = "lab";
  Lend(0, 1);
  const StreamId borrower = Fill("red", 800);
  const StreamId own = OpenAndAsk("blue", 200);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(own));
  w0_.set_free_bytes(0);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  // Blue would also have to borrow.
  const StreamId beyond = OpenAndAsk("blue", 400);
  EXPECT_EQ(Explain(beyond).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Next(borrower), std::nullopt);
  // In this case red borrows nothing.
  Lend(1, 2);
  clock_.Advance(absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(borrower), std::nullopt);
  Lend(0, 2);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(borrower), std::nullopt);
  clock_.Advance(absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Lost(borrower));
}

TEST_F(ClusterReclaimTest, WhereItMayNotGoNothingIsTaken) {
  const StreamId borrower = Fill("red", 1000);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  v1::WorkerState w1 = TestWorker("w1");
  w1.set_free_bytes(10);
  Join(w1);
  EXPECT_EQ(Explain(OpenAndAsk("blue", 400)).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Next(borrower), std::nullopt);
}

TEST_F(ClusterReclaimTest, ContentsSharedByLostLeasesBecomeFree) {
  const StreamId a = Fill("red", 500), b = Fill("red", 500);
  for (const StreamId& session : {a, b}) {
    HeldBy(session, &w0_)
        ->mutable_use()
        ->mutable_contents()
        ->set_size_bytes(400);
  }
  w0_.mutable_memory()->set_content_bytes(450);
  w0_.mutable_memory()->set_idle_content_bytes(50);
  Work(b, absl::Seconds(1));
  // Either of them alone would leave 100 missing.
  OpenAndAsk("blue", 300);
  EXPECT_TRUE(Lost(a));
  EXPECT_TRUE(Lost(b));
}

TEST_F(ClusterReclaimTest, NewLeaseIsSpared) {
  const StreamId old = Fill("red", 500);
  Work(old, absl::Seconds(90));
  clock_.Advance(config_.reclaim_spares_for - absl::Seconds(1));
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId young = Fill("red", 500);
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(old));
  EXPECT_EQ(Next(young), std::nullopt);
  // The young session yields if there is no other.
  DropAndReport(0);
  EXPECT_EQ(Next(young), std::nullopt);
  clock_.Advance(absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Lost(young));
}

TEST_F(ClusterReclaimTest, UndeclaredTrainingYieldsAsBatchWork) {
  const StreamId trains = Fill("red", 500), serves = Fill("red", 500);
  scheduler::Work work;
  work.Add({semantics::OpClass::kMatmul,
            semantics::Phase::kTraining,
            {1000, 10, 2},
            3});
  sessions::NoteGraph(*cluster_, trains, "step",
                      std::make_shared<const scheduler::Work>(work));
  Work(trains, absl::Seconds(90));
  OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(trains));
  EXPECT_EQ(Next(serves), std::nullopt);
}

TEST_F(ClusterReclaimTest, RealtimeTrainingKeepsItsLease) {
  const StreamId trains = Fill("red", 500), serves = Fill("red", 500);
  scheduler::Work work;
  work.Add({semantics::OpClass::kMatmul,
            semantics::Phase::kTraining,
            {1000, 10, 2},
            3});
  sessions::NoteGraph(*cluster_, trains, "step",
                      std::make_shared<const scheduler::Work>(work));
  v1::Urgency urgency;
  urgency.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
  EXPECT_TRUE(sessions::SetUrgency(*cluster_, trains, urgency).ok());
  Work(serves, absl::Seconds(90));
  OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(serves));
  EXPECT_EQ(Next(trains), std::nullopt);
}

TEST_F(ClusterReclaimTest, ReclaimedLeaseIsExplained) {
  const StreamId borrower = Fill("red", 1000);
  Work(borrower, absl::Seconds(12));
  const std::string lease_id = LeaseId(w0_);
  OpenAndAsk("blue", 400);
  EXPECT_TRUE(Lost(borrower));
  clock_.Advance(absl::Seconds(3));
  v1::DeviceExplanation device = Explain(borrower);
  EXPECT_EQ(device.lease_id(), "");
  EXPECT_EQ(device.gate().reason(), "QUOTA_RECLAIMED");
  EXPECT_EQ(
      device.gate().message(),
      "the lease at worker w0 has ended: tenant blue reclaimed its quota");
  EXPECT_EQ(device.lost_lease().lease_id(), lease_id);
  EXPECT_EQ(device.lost_lease().worker_id(), "w0");
  EXPECT_EQ(device.lost_lease().reason(), "QUOTA_RECLAIMED");
  EXPECT_EQ(device.lost_lease().for_tenant(), "blue");
  EXPECT_EQ(FromProtoDuration(device.lost_lease().lost()), absl::Seconds(12));
  EXPECT_EQ(FromProtoDuration(device.lost_lease().age()), absl::Seconds(3));
  EXPECT_EQ(explain::ExplainTenant(*cluster_, "red")->held(0).gate().reason(),
            "QUOTA_RECLAIMED");
  // The tenant gets another lease, and then gives that one back.
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId other = Join(w1);
  Ask(borrower, 1 << 20);
  Execute(other, &w1);
  const auto granted = Next(borrower);
  ASSERT_TRUE(granted.has_value() && granted->has_granted());
  device = Explain(borrower);
  EXPECT_FALSE(device.has_gate());
  EXPECT_EQ(device.lost_lease().lease_id(), lease_id);
  v1::LeaseReturn returned;
  returned.set_lease_id(granted->granted().lease().lease_id());
  EXPECT_TRUE(requests::Return(*cluster_, borrower, returned).ok());
  EXPECT_EQ(explain::ExplainSession(*cluster_, borrower.owner)->devices_size(),
            0);
}

TEST_F(ClusterReclaimTest, LossOfAWorkerIsExplained) {
  const StreamId session = Fill("green", 100);
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session)->ended().reason(), "WORKER_LOST");
  EXPECT_EQ(Explain(session).gate().message(),
            "the lease at worker w0 has ended");
  EXPECT_EQ(Explain(session).lost_lease().reason(), "WORKER_LOST");
  EXPECT_EQ(Explain(session).lost_lease().for_tenant(), "");
}

// A lender needs two GiB at once. The borrower has one lease that can be
// reclaimed, and one at a worker that has not returned since a restart.
TEST_F(ClusterReclaimTest, ReclaimThatIsNotEnoughTakesNothing) {
  const StreamId away = Fill("red", 100);
  v1::WorkerState w1 = TestWorker("w1");
  StreamId there = Join(w1);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  const StreamId near = Fill("red", 100, there, &w1);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", false, false).ok());
  config_.tenants[1].limits.set_memory_bytes(2 * kGiB);
  Lend(0, 2);
  const std::map<std::string, std::string> state = persistence::Save(*cluster_);
  Restart();
  tenants::Set(*cluster_, config_.tenants);
  ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
  w1.set_applied_revision(0);
  there = Join(w1);
  const StreamId again = Open("red", near.owner);
  const StreamId lender = OpenAndAsk("blue", 100);
  EXPECT_EQ(Explain(lender).gate().reason(), "QUOTA_EXCEEDED");
  Execute(there, &w1);
  EXPECT_EQ(Next(again), std::nullopt);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->lease_count(), 1u);
  // When the other worker has reported, both leases yield.
  w0_.set_applied_revision(0);
  worker_ = Join(w0_);
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Lost(again));
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->lease_count(), 0u);
}

// Tests a worker's report about the wait of a session's next message.
class MessageWaitTest : public ClusterReclaimTest {
 protected:
  MessageWaitTest() {
    session_ = Fill("green", 100);
    *wait_.mutable_waited() = ToProtoDuration(absl::Milliseconds(2300));
  }
  v1::PlacementGate Gate(v1::MessageWait::For what) {
    wait_.set_what(what);
    *HeldBy(session_, &w0_)->mutable_wait() = wait_;
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
    EXPECT_EQ(
        explain::ExplainTenant(*cluster_, "green")->held(0).gate().reason(),
        Explain(session_).gate().reason());
    return Explain(session_).gate();
  }

  StreamId session_;
  v1::MessageWait wait_;
};

TEST_F(MessageWaitTest, ForItsTurnSaysWhoIsServed) {
  EXPECT_FALSE(Explain(session_).has_gate());
  v1::PlacementGate gate = Gate(v1::MessageWait::TURN);
  EXPECT_EQ(gate.reason(), "WAITS_FOR_TURN");
  EXPECT_EQ(gate.message(), "its next message has waited 2.3s for its turn");
  wait_.set_served_tenant("blue");
  wait_.set_served_session_id("1a2b3c4d");
  *wait_.mutable_ahead() = ToProtoDuration(absl::Milliseconds(1250));
  EXPECT_EQ(Gate(v1::MessageWait::TURN).message(),
            "its next message has waited 2.3s for its turn: session 1a2b3c4d "
            "of tenant blue is served, 1.25s of work are ahead");
}

TEST_F(MessageWaitTest, ForEverythingElseToo) {
  wait_.set_worker_id("w7");
  const auto expect = [&](v1::MessageWait::For what, const std::string& reason,
                          const std::string& text, const std::string& until) {
    const v1::PlacementGate gate = Gate(what);
    EXPECT_EQ(gate.reason(), reason);
    EXPECT_EQ(gate.message(), "its next message has waited 2.3s " + text);
    EXPECT_THAT(gate.unblocked_by(), HasSubstr(until));
  };
  expect(v1::MessageWait::BYTES, "WAITS_FOR_BYTES",
         "for what its client uploads", "its client");
  expect(v1::MessageWait::VALUE, "WAITS_FOR_VALUE",
         "for a value from worker w7", "worker w7");
  expect(v1::MessageWait::GRAPH, "WAITS_FOR_GRAPH",
         "for a graph whose plan is gone", "its client");
  expect(v1::MessageWait::CONTENT, "WAITS_FOR_CONTENT",
         "for a content on the worker's disk", "the disk");
  expect(v1::MessageWait::ROOM, "WAITS_FOR_ROOM",
         "for memory that runs beside it hold", "the end of these runs");
  expect(v1::MessageWait::BATCH, "WAITS_FOR_BATCH",
         "for runs of other sessions to share products with", "such a run");
  wait_.clear_worker_id();
  EXPECT_THAT(Gate(v1::MessageWait::VALUE).message(),
              HasSubstr("from another worker"));
}

TEST_F(MessageWaitTest, CreditIsMissingBeforeAllElse) {
  HeldBy(session_, &w0_)->set_out_of_credit(true);
  EXPECT_EQ(Gate(v1::MessageWait::TURN).reason(), "OUT_OF_CREDIT");
}

TEST_F(MessageWaitTest, UnknownWaitIsNoGate) {
  wait_.set_what(static_cast<v1::MessageWait::For>(99));
  *HeldBy(session_, &w0_)->mutable_wait() = wait_;
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  EXPECT_FALSE(Explain(session_).has_gate());
  wait_.set_served_tenant(std::string(1000, 't'));
  *HeldBy(session_, &w0_)->mutable_wait() = wait_;
  EXPECT_FALSE(workers::Report(*cluster_, worker_, w0_).ok());
}

}  // namespace
}  // namespace djinn::coordinator
