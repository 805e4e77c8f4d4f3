// Tests clients that lose a worker and bind the virtual device again.
#include <string>

#include "common/metrics/exposition.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A session has its virtual device at w0.
class ClusterRebindTest : public ClusterTest {
 protected:
  ClusterRebindTest()
      : session_(Open("red")),
        one_(Join(w0_)),
        lease_(Grant(session_, 0, one_, &w0_)) {}

  // The client loses the worker of the lease, and requests another one.
  void Lose(const v1::Lease& lease) {
    v1::LeaseReturn returned;
    returned.set_lease_id(lease.lease_id());
    returned.set_unreachable(true);
    EXPECT_EQ(requests::Return(*cluster_, session_, returned),
              absl::OkStatus());
    EXPECT_EQ(requests::Request(*cluster_, session_, TestLeaseRequest(0)),
              absl::OkStatus());
  }
  // Returns the lease that the client is granted; an empty one if none is.
  v1::Lease Granted() {
    const std::optional<v1::SessionResponse> next = Next(session_);
    return next.has_value() ? next->granted().lease() : v1::Lease();
  }

  StreamId session_, one_;
  v1::Lease lease_;
  v1::WorkerState w1_ = TestWorker("w1");
};

TEST_F(ClusterRebindTest, AnotherWorkerTakesADeviceWhoseWorkerIsLost) {
  const StreamId two = Join(w1_);
  Lose(lease_);
  Execute(two, &w1_);
  const v1::Lease other = Granted();
  EXPECT_EQ(other.worker_id(), "w1");
  EXPECT_GT(other.session_epoch(), lease_.session_epoch());
  // The old worker still lives, and must free what it has.
  EXPECT_FALSE(views::GetLease(*cluster_, lease_.lease_id()).ok());
  const std::optional<v1::DesiredState> desired = Desired(one_);
  EXPECT_THAT(desired->drop_session_ids(), ElementsAre(session_.owner));
  EXPECT_THAT(desired->drop_lease_ids(), ElementsAre(lease_.lease_id()));
}

TEST_F(ClusterRebindTest, ASmallIdleWorkerDoesNotTakeWhatItCannotHold) {
  w1_.set_memory_bytes(uint64_t{256} << 20);
  w1_.set_free_bytes(uint64_t{256} << 20);
  const StreamId small = Join(w1_);
  v1::WorkerState w2 = TestWorker("w2");
  const StreamId large = Join(w2);
  // The large worker serves another session.
  const StreamId other = Open("red");
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_needed_bytes(uint64_t{512} << 20);
  ASSERT_TRUE(requests::Request(*cluster_, other, request).ok());
  workers::Leave(*cluster_, one_);
  Execute(large, &w2);
  v1::LeaseReturn returned;
  returned.set_lease_id(lease_.lease_id());
  returned.set_unreachable(true);
  EXPECT_EQ(requests::Return(*cluster_, session_, returned), absl::OkStatus());
  request.set_recovers(true);
  EXPECT_EQ(requests::Request(*cluster_, session_, request), absl::OkStatus());
  Execute(small, &w1_);
  Execute(large, &w2);
  EXPECT_EQ(Granted().worker_id(), "w2");
}

TEST_F(ClusterRebindTest, TheOnlyWorkerTakesTheDeviceAgainWhenItHasForgotten) {
  Lose(lease_);
  EXPECT_FALSE(Next(session_).has_value());
  Execute(one_, &w0_);  // forgets the session
  EXPECT_EQ(w0_.sessions_size(), 0);
  Execute(one_, &w0_);  // acknowledges the new lease
  const v1::Lease again = Granted();
  EXPECT_EQ(again.worker_id(), "w0");
  EXPECT_NE(again.lease_id(), lease_.lease_id());
  EXPECT_GT(again.session_epoch(), lease_.session_epoch());
}

TEST_F(ClusterRebindTest, ARestartedWorkerTakesTheDeviceAgain) {
  // The client notices the end of the process before the coordinator.
  Lose(lease_);
  workers::Leave(*cluster_, one_);
  EXPECT_FALSE(Next(session_).has_value());
  w0_ = TestWorker("w0", 2);
  one_ = Join(w0_);
  Execute(one_, &w0_);
  const v1::Lease again = Granted();
  EXPECT_EQ(again.worker_incarnation(), 2u);
  EXPECT_GT(again.session_epoch(), lease_.session_epoch());
}

TEST_F(ClusterRebindTest, ARestartedWorkerIsNotAvoidedForItsEarlierProcess) {
  const StreamId two = Join(w1_);
  Lose(lease_);
  Execute(two, &w1_);
  const v1::Lease other = Granted();
  ASSERT_EQ(other.worker_id(), "w1");
  workers::Leave(*cluster_, one_);
  w0_ = TestWorker("w0", 2);
  one_ = Join(w0_);
  Lose(other);
  Execute(one_, &w0_);
  EXPECT_EQ(Granted().worker_id(), "w0");
}

TEST_F(ClusterRebindTest,
       AWorkerThatGoesAwayIsReplacedBeforeItsLeaseIsGranted) {
  const StreamId two = Join(w1_);
  Lose(lease_);  // offers w1 to the client
  ASSERT_TRUE(Desired(two).has_value());
  workers::Leave(*cluster_, two);
  // w0 is avoided, but it is the only one that is left.
  Execute(one_, &w0_);
  Execute(one_, &w0_);
  EXPECT_EQ(Granted().worker_id(), "w0");
  // The other worker may have applied the lease; it ends there.
  const StreamId back = Join(w1_);
  EXPECT_EQ(Desired(back)->drop_lease_ids_size(), 1);
  EXPECT_THAT(Desired(back).value_or(v1::DesiredState()).leases(), IsEmpty());
}

TEST_F(ClusterRebindTest, AnEndedLeaseNeedsNoReturn) {
  workers::Leave(*cluster_, one_);
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session_)->ended().reason(), "WORKER_LOST");
  const StreamId two = Join(w1_);
  EXPECT_EQ(requests::Request(*cluster_, session_, TestLeaseRequest(0)),
            absl::OkStatus());
  Execute(two, &w1_);
  const v1::Lease other = Granted();
  EXPECT_EQ(other.worker_id(), "w1");
  EXPECT_GT(other.session_epoch(), lease_.session_epoch());
}

TEST_F(ClusterRebindTest, ADeviceThatMigratesLeavesBothWorkersWhenOneIsLost) {
  const StreamId two = Join(w1_);
  v1::MigrateSessionRequest migrate;
  migrate.set_session_id(session_.owner);
  ASSERT_TRUE(operations::MigrateSession(*cluster_, migrate).ok());
  Execute(two, &w1_);
  const v1::MigrationRequest request = Next(session_)->migrate();
  ASSERT_EQ(request.to().lease().worker_id(), "w1");
  Lose(lease_);
  EXPECT_EQ(Next(session_)->ended().lease_id(),
            request.to().lease().lease_id());
  Execute(two, &w1_);
  Execute(two, &w1_);
  const v1::Lease other = Granted();
  EXPECT_EQ(other.worker_id(), "w1");
  EXPECT_GT(other.session_epoch(), request.to().lease().session_epoch());
}

TEST_F(ClusterRebindTest, ASilentWorkerIsReplacedBeforeItsLeaseIsGranted) {
  const StreamId two = Join(w1_);
  Lose(lease_);  // offers w1, which does not acknowledge it
  clock_.Advance(config_.worker_silence);
  Execute(one_, &w0_);  // forgets the session
  coordinator::Tick(*cluster_);
  EXPECT_EQ(w0_.sessions_size(), 0);
  clock_.Advance(absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  // Both are avoided, so neither is.
  Execute(one_, &w0_);
  EXPECT_EQ(Granted().worker_id(), "w0");
  // A report ends the silence.
  EXPECT_EQ(workers::Report(*cluster_, two, w1_), absl::OkStatus());
  const StreamId other = Open("red");
  EXPECT_TRUE(requests::Request(*cluster_, other, TestLeaseRequest(0)).ok());
  EXPECT_EQ(w1_.sessions_size(), 0);
  Execute(two, &w1_);
  EXPECT_EQ(w1_.sessions_size(), 1);
}

// A second worker is slower than the first.
class ClusterUnreachedTest : public ClusterRebindTest {
 protected:
  ClusterUnreachedTest() {
    w1_.set_queued_runs(10);
    two_ = Join(w1_);
  }

  // Returns the worker of a new session of the tenant.
  std::string Placed(const std::string& tenant) {
    const StreamId session = Open(tenant);
    EXPECT_TRUE(
        requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
    Execute(one_, &w0_);
    Execute(two_, &w1_);
    const std::optional<v1::SessionResponse> next = Next(session);
    EXPECT_TRUE(next.has_value() && next->has_granted());
    return next->granted().lease().worker_id();
  }
  // Has w0 report that a client uses its last lease.
  void Attach() {
    w0_.mutable_sessions(w0_.sessions_size() - 1)->set_attached(true);
    EXPECT_EQ(workers::Report(*cluster_, one_, w0_), absl::OkStatus());
  }

  StreamId two_;
};

TEST_F(ClusterUnreachedTest, TheTenantsNextSessionsGetAnotherWorkerAtOnce) {
  ASSERT_EQ(Placed("red"), "w0");
  Lose(lease_);
  EXPECT_EQ(Placed("red"), "w1");
  // The tenant may be at fault.
  EXPECT_EQ(Placed("blue"), "w0");
  const v1::WorkerInfo info = *views::GetWorker(*cluster_, "w0");
  EXPECT_EQ(info.unreached_sessions(), 1u);
  EXPECT_EQ(info.unreached_tenants(), 1u);
  EXPECT_FALSE(info.unreached_by_all());
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_worker_unreached_tenants{worker=\"w0\"} 1\n"));
  clock_.Advance(UnreachedWorkers::kReportLife);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->unreached_sessions(), 0u);
}

TEST_F(ClusterUnreachedTest, ASessionThatGetsThroughEndsThat) {
  ASSERT_EQ(Placed("red"), "w0");
  Lose(lease_);
  Attach();
  EXPECT_EQ(Placed("red"), "w0");
}

}  // namespace
}  // namespace djinn::coordinator
