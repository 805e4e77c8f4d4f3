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
