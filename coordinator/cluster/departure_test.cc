// Tests workers that say that they are about to stop.
#include "coordinator/cluster/departure.h"

#include <optional>
#include <string>

#include "common/base/error.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using testing::HasSubstr;
using testing::Not;

class DepartureTest : public ClusterTest {
 protected:
  DepartureTest() : here_(Join(w0_)) {}

  absl::StatusOr<v1::LeaveProgress> Leave(const v1::WorkerState& worker) {
    v1::LeaveRequest request;
    request.set_worker_id(worker.worker_id());
    request.set_incarnation(worker.incarnation());
    return departure::Leave(*cluster_, request);
  }
  v1::WorkerInfo Info(const std::string& id) {
    return views::GetWorker(*cluster_, id).value();
  }
  bool Knows(const std::string& id) {
    return views::GetWorker(*cluster_, id).ok();
  }
  // Lets the time pass after which a silent worker is lost.
  void Pass() {
    clock_.Advance(config_.worker_timeout + absl::Seconds(1));
    coordinator::Tick(*cluster_);
  }

  StreamId here_;
  v1::WorkerState w1_ = TestWorker("w1");
};

TEST_F(DepartureTest, AWorkerWithoutLeasesHasNothingToWaitFor) {
  const v1::LeaveProgress progress = Leave(w0_).value();
  EXPECT_EQ(progress.leases(), 0u);
  EXPECT_TRUE(progress.settled());
  EXPECT_FALSE(progress.others());
}

TEST_F(DepartureTest, ItsVirtualDevicesAreAskedToMigrate) {
  const StreamId session = Open("red");
  Grant(session, 0, here_, &w0_);
  EXPECT_FALSE(Leave(w0_)->others());
  const StreamId there = Join(w1_);
  EXPECT_TRUE(Leave(w0_)->others());
  EXPECT_EQ(Leave(w0_)->leases(), 1u);
  clock_.Advance(absl::Seconds(2));
  Execute(there, &w1_);
  Execute(here_, &w0_);
  coordinator::Tick(*cluster_);
  Execute(there, &w1_);
  const std::optional<v1::SessionResponse> next = Next(session);
  ASSERT_TRUE(next.has_value() && next->has_migrate());
  EXPECT_EQ(next->migrate().to().lease().worker_id(), "w1");
}

TEST_F(DepartureTest, ItGetsNoNewLeases) {
  ASSERT_TRUE(Leave(w0_).ok());
  EXPECT_TRUE(Info("w0").cordoned());
  EXPECT_TRUE(Info("w0").draining());
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  Execute(here_, &w0_);
  EXPECT_EQ(w0_.sessions_size(), 0);
  // Another worker takes them.
  const StreamId there = Join(w1_);
  coordinator::Tick(*cluster_);
  Execute(there, &w1_);
  EXPECT_EQ(w1_.sessions_size(), 1);
}

TEST_F(DepartureTest, OthersThatTakeNoLeasesDoNotCount) {
  Join(w1_);
  EXPECT_TRUE(Leave(w0_)->others());
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
  EXPECT_FALSE(Leave(w0_)->others());
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", false, false).ok());
  ASSERT_TRUE(Leave(w1_).ok());
  EXPECT_FALSE(Leave(w0_)->others());
}

TEST_F(DepartureTest, ItIsOverTenSecondsAfterTheLastCall) {
  ASSERT_TRUE(Leave(w0_).ok());
  clock_.Advance(absl::Seconds(5));
  ASSERT_TRUE(Leave(w0_).ok());
  clock_.Advance(absl::Seconds(9));
  EXPECT_EQ(workers::Report(*cluster_, here_, w0_), absl::OkStatus());
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Info("w0").draining());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(workers::Report(*cluster_, here_, w0_), absl::OkStatus());
  coordinator::Tick(*cluster_);
  EXPECT_FALSE(Info("w0").draining());
  EXPECT_FALSE(Info("w0").cordoned());
}

TEST_F(DepartureTest, TheNextProcessUnderTheIdTakesLeases) {
  ASSERT_TRUE(Leave(w0_).ok());
  workers::Leave(*cluster_, here_);
  w0_.set_incarnation(w0_.incarnation() + 1);
  Join(w0_);
  coordinator::Tick(*cluster_);
  EXPECT_FALSE(Info("w0").draining());
}

TEST_F(DepartureTest, AWorkerThatLeftWithoutLeasesIsForgottenAndNotLost) {
  ASSERT_TRUE(Leave(w0_).ok());
  workers::Leave(*cluster_, here_);
  EXPECT_FALSE(Knows("w0"));
  Pass();
  EXPECT_THAT(Metrics(), Not(HasSubstr("kind=\"worker_lost\"")));
  EXPECT_THAT(Metrics(), Not(HasSubstr("djinn_worker_state{worker=\"w0\"")));
  // Its next process counts as no restart.
  w0_.set_incarnation(w0_.incarnation() + 1);
  Join(w0_);
  EXPECT_THAT(Metrics(), Not(HasSubstr("kind=\"worker_restarted\",result")));
  EXPECT_FALSE(Info("w0").draining());
}

TEST_F(DepartureTest, AWorkerThatLeavesLeasesBehindIsLost) {
  const StreamId session = Open("red");
  Grant(session, 0, here_, &w0_);
  ASSERT_TRUE(Leave(w0_).ok());
  workers::Leave(*cluster_, here_);
  EXPECT_EQ(Info("w0").state(), v1::WorkerInfo::ACTIVE);
  Pass();
  EXPECT_EQ(Info("w0").state(), v1::WorkerInfo::LOST);
  EXPECT_EQ(Next(session)->ended().reason(), "WORKER_LOST");
  EXPECT_THAT(Metrics(), HasSubstr("djinn_recoveries_total{kind=\"worker_"
                                   "lost\",result=\"lost\"} 1\n"));
}

TEST_F(DepartureTest, AWorkerWithUseThatIsNotSavedStays) {
  const StreamId session = Open("red");
  v1::LeaseReturn returned;
  returned.set_lease_id(Grant(session, 0, here_, &w0_).lease_id());
  ASSERT_EQ(requests::Return(*cluster_, session, returned), absl::OkStatus());
  const v1::LeaveProgress progress = Leave(w0_).value();
  EXPECT_EQ(progress.leases(), 0u);
  EXPECT_FALSE(progress.settled());
  workers::Leave(*cluster_, here_);
  EXPECT_TRUE(Knows("w0"));
}

TEST_F(DepartureTest, AStreamThatBreaksMeanwhileDoesNotEndTheDeparture) {
  ASSERT_TRUE(Leave(w0_).ok());
  workers::Leave(*cluster_, here_);
  coordinator::Tick(*cluster_);
  Join(w0_);
  EXPECT_TRUE(Info("w0").draining());
  Pass();
  EXPECT_FALSE(Info("w0").draining());
}

TEST_F(DepartureTest, AWorkerThatAnOperatorDrainedIsForgottenWhenItStops) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, true).ok());
  workers::Leave(*cluster_, here_);
  EXPECT_FALSE(Knows("w0"));
  Pass();
  EXPECT_THAT(Metrics(), Not(HasSubstr("kind=\"worker_lost\"")));
  // The drain stays until the operator ends it.
  Join(w0_);
  EXPECT_TRUE(Info("w0").draining());
}

TEST_F(DepartureTest, ADrainedWorkerThatHoldsASessionStays) {
  const StreamId session = Open("red");
  Grant(session, 0, here_, &w0_);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, true).ok());
  workers::Leave(*cluster_, here_);
  EXPECT_TRUE(Knows("w0"));
}

TEST_F(DepartureTest, ACordonedWorkerThatStopsIsLost) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  workers::Leave(*cluster_, here_);
  Pass();
  EXPECT_EQ(Info("w0").state(), v1::WorkerInfo::LOST);
}

TEST_F(DepartureTest, AnOperatorsCordonStays) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  ASSERT_TRUE(Leave(w0_).ok());
  workers::Leave(*cluster_, here_);
  w0_.set_incarnation(w0_.incarnation() + 1);
  Join(w0_);
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Info("w0").cordoned());
  EXPECT_FALSE(Info("w0").draining());
}

TEST_F(DepartureTest, AProcessThatHasNotJoinedIsUnknown) {
  EXPECT_EQ(ErrorReason(Leave(w1_).status()), "WORKER_UNKNOWN");
  v1::WorkerState earlier = w0_;
  earlier.set_incarnation(w0_.incarnation() + 1);
  EXPECT_EQ(ErrorReason(Leave(earlier).status()), "WORKER_UNKNOWN");
  EXPECT_FALSE(Info("w0").draining());
}

}  // namespace
}  // namespace djinn::coordinator
