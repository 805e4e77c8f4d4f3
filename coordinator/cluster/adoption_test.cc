// Tests what a restarted coordinator adopts from workers and clients.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/lease/lease_signer.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/cluster_fixture.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ClusterAdoptionTest = ClusterTest;

TEST_F(ClusterAdoptionTest, RestartedCoordinatorAdoptsAndRenews) {
  StreamId worker = Join(w0_);
  StreamId session = Open("red");
  const v1::Lease lease = Grant(session, 0, worker, &w0_);
  Restart();
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  ASSERT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].state(),
            v1::SessionInfo::ADOPTED);
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].tenant(), "red");
  const v1::DesiredState desired = *Desired(worker);
  EXPECT_THAT(desired.drop_session_ids(), IsEmpty());
  ASSERT_THAT(desired.leases(), SizeIs(1));
  const v1::LeaseClaims claims = UncheckedClaims(desired.leases(0));
  EXPECT_EQ(claims.lease_id(), lease.lease_id());
  EXPECT_EQ(claims.session_id(), session.owner);
  EXPECT_EQ(claims.revision(), 2u);

  EXPECT_EQ(ErrorReason(Attach("blue", session.owner).status()),
            "SESSION_OF_OTHER_TENANT");
  session = Open("red", session.owner);
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].state(),
            v1::SessionInfo::ATTACHED);
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(session)->granted().lease().lease_id(), lease.lease_id());
}

TEST_F(ClusterAdoptionTest, UnclaimedAdoptedSessionIsDropped) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  Restart();
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  Desired(worker);
  clock_.Advance(config_.session_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  coordinator::Tick(*cluster_);
  EXPECT_THAT(Desired(worker)->drop_session_ids(), ElementsAre(session.owner));
}

TEST_F(ClusterAdoptionTest, ClientMayComeBackBeforeItsWorker) {
  StreamId worker = Join(w0_);
  StreamId session = Open("red");
  const v1::Lease lease = Grant(session, 0, worker, &w0_);
  Restart();
  session = Open("red", session.owner);
  EXPECT_EQ(ErrorReason(Attach("blue", session.owner).status()),
            "SESSION_OF_OTHER_TENANT");
  // The request finds the lease that the worker reports later.
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  w0_.set_applied_revision(0);
  Join(w0_);
  EXPECT_EQ(Next(session)->granted().lease().lease_id(), lease.lease_id());
  EXPECT_EQ(Next(session), std::nullopt);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
}

TEST_F(ClusterAdoptionTest, SessionOfATenantThatIsNoMoreIsDroppedNotAdopted) {
  StreamId worker = Join(w0_);
  const StreamId red = Open("red");
  Grant(red, 0, worker, &w0_);
  const StreamId blue = Open("blue");
  Grant(blue, 0, worker, &w0_);
  Tenants without_red({TestTenant("blue")});
  cluster_ = MakeCluster(&config_, &without_red, &clock_, &random_);
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  ASSERT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].tenant(), "blue");
  Execute(worker, &w0_);
  ASSERT_THAT(w0_.sessions(), SizeIs(1));
  EXPECT_EQ(UncheckedClaims(w0_.sessions(0).lease()).session_id(), blue.owner);
  cluster_.reset();
}

TEST_F(ClusterAdoptionTest, AdoptedLeasesHaveTheConfiguredLimits) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  Restart();
  w0_.set_applied_revision(0);
  v1::SignedLease* const held = w0_.mutable_sessions(0)->mutable_lease();
  v1::LeaseClaims claims = UncheckedClaims(*held);
  claims.mutable_limits()->set_memory_bytes(~uint64_t{0});
  held->set_claims(claims.SerializeAsString());
  worker = Join(w0_);
  const v1::DesiredState desired = *Desired(worker);
  ASSERT_THAT(desired.leases(), SizeIs(1));
  EXPECT_EQ(UncheckedClaims(desired.leases(0)).limits().memory_bytes(),
            uint64_t{1} << 30);
}

TEST_F(ClusterAdoptionTest, AdoptionBeyondTheLimitLeavesNoRoomForNewSessions) {
  StreamId worker = Join(w0_);
  for (int i = 0; i < 4; ++i) Grant(Open("red"), 0, worker, &w0_);
  v1::LeaseClaims fifth = UncheckedClaims(w0_.sessions(0).lease());
  fifth.set_lease_id("fifth");
  fifth.set_session_id(std::string(32, 'f'));
  v1::SignedLease lease = w0_.sessions(0).lease();
  lease.set_claims(fifth.SerializeAsString());
  Hold(lease, &w0_);
  Restart();
  w0_.set_applied_revision(0);
  Join(w0_);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(5));
  EXPECT_EQ(ErrorReason(Attach("red").status()), "TOO_MANY_SESSIONS");
  Open("red", fifth.session_id());
}

TEST_F(ClusterAdoptionTest, LeaseOfAnotherTenantsSessionIsNotAdopted) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  Restart();
  Open("blue", session.owner);
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), IsEmpty());
}

// A device was bound again while its first worker was cut off, and its lease
// there ended. That worker returns with the lease to a restarted coordinator.
class ReboundDeviceTest : public ClusterTest {
 protected:
  using Saved = std::map<std::string, std::string>;

  ReboundDeviceTest() {
    there_ = Join(w1_);
    EXPECT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
    here_ = Join(w0_);
    session_ = Open("red");
    old_ = Grant(session_, 0, here_, &w0_);
    with_old_ = persistence::Save(*cluster_);
    EXPECT_TRUE(operations::Cordon(*cluster_, "w1", false, false).ok());
    clock_.Advance(config_.worker_timeout + absl::Seconds(1));
    EXPECT_EQ(workers::Report(*cluster_, there_, w1_), absl::OkStatus());
    coordinator::Tick(*cluster_);
    EXPECT_EQ(Next(session_)->ended().reason(), "WORKER_LOST");
    new_ = Grant(session_, 0, there_, &w1_);
    EXPECT_GT(new_.session_epoch(), old_.session_epoch());
    with_new_ = persistence::Save(*cluster_);
  }

  // Restarts the coordinator with the saved state, or without any.
  void StartAnew(const Saved& saved) {
    Restart();
    if (!saved.empty()) {
      EXPECT_EQ(persistence::Restore(*cluster_, saved), absl::OkStatus());
    }
    w0_.set_applied_revision(0);
    w1_.set_applied_revision(0);
  }
  // Joins both workers, in this order, and delivers their desired states.
  void JoinBoth(bool old_first) {
    if (old_first) here_ = Join(w0_);
    there_ = Join(w1_);
    if (!old_first) here_ = Join(w0_);
    ExpectTheNewOne();
  }
  void ExpectTheNewOne() {
    ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
    EXPECT_FALSE(explain::ExplainSession(*cluster_, session_.owner)
                     ->devices(0)
                     .has_lost_lease());
    EXPECT_EQ(views::Leases(*cluster_, {}).items[0].lease_id(),
              new_.lease_id());
    EXPECT_THAT(Desired(there_)->drop_session_ids(), IsEmpty());
    EXPECT_THAT(Desired(here_)->drop_session_ids(),
                ElementsAre(session_.owner));
    const StreamId back = Open("red", session_.owner);
    while (const auto next = Next(back)) {
      EXPECT_EQ(next->ended().lease_id(), old_.lease_id());
    }
    ASSERT_TRUE(requests::Request(*cluster_, back, TestLeaseRequest(0)).ok());
    EXPECT_EQ(Next(back)->granted().lease().lease_id(), new_.lease_id());
  }

  static v1::SignedLease Signed(const v1::LeaseClaims& claims,
                                const Saved& saved) {
    v1::StoredKey key;
    EXPECT_TRUE(key.ParseFromString(saved.lower_bound("key/")->second));
    return LeaseSigner::FromSeed(key.seed())->Sign(claims);
  }

  v1::WorkerState w1_ = TestWorker("w1");
  StreamId here_, there_, session_;
  v1::Lease old_, new_;
  Saved with_old_, with_new_;
};

TEST_F(ReboundDeviceTest, TheNewerLeaseStaysWhereNothingWasKept) {
  for (const bool old_first : {false, true}) {
    SCOPED_TRACE(old_first);
    StartAnew({});
    JoinBoth(old_first);
  }
}

TEST_F(ReboundDeviceTest, TheNewerLeaseStaysWhereTheStoreKnowsIt) {
  for (const bool old_first : {false, true}) {
    SCOPED_TRACE(old_first);
    StartAnew(with_new_);
    JoinBoth(old_first);
  }
}

TEST_F(ReboundDeviceTest, TheNewerLeaseStaysWhereTheStoreIsOlder) {
  for (const bool old_first : {false, true}) {
    SCOPED_TRACE(old_first);
    StartAnew(with_old_);
    JoinBoth(old_first);
  }
}

TEST_F(ReboundDeviceTest, LeaseThatTheStoreEndedIsNotAdopted) {
  StartAnew(with_new_);
  here_ = Join(w0_);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(here_)->drop_session_ids(), ElementsAre(session_.owner));
  // A client that asks meanwhile does not get it either.
  const StreamId back = Open("red", session_.owner);
  ASSERT_TRUE(requests::Request(*cluster_, back, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(back), std::nullopt);
  there_ = Join(w1_);
  EXPECT_EQ(Next(back)->granted().lease().lease_id(), new_.lease_id());
}

TEST_F(ReboundDeviceTest, LeaseNewerThanTheStoreIsAdopted) {
  // The store lacks the device, or has another lease of it.
  const v1::Lease second = Grant(session_, 1, there_, &w1_);
  EXPECT_EQ(second.session_epoch(), new_.session_epoch());
  for (const Saved& saved : {with_old_, with_new_}) {
    StartAnew(saved);
    there_ = Join(w1_);
    EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(2));
    EXPECT_THAT(Desired(there_)->drop_session_ids(), IsEmpty());
  }
}

TEST_F(ReboundDeviceTest, ALeaseOfAnotherDeviceKeepsItsWorker) {
  // The lease is on the first worker, beside the one that has ended.
  v1::WorkerState both = w0_;
  StartAnew({});
  v1::LeaseClaims claims = UncheckedClaims(w0_.sessions(0).lease());
  claims.set_lease_id("second");
  claims.set_virtual_device(1);
  v1::SignedLease second = w0_.sessions(0).lease();
  second.set_claims(claims.SerializeAsString());
  Hold(second, &both);
  both.set_applied_revision(0);
  there_ = Join(w1_);
  here_ = Join(both);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(2));
  EXPECT_THAT(Desired(here_)->drop_session_ids(), IsEmpty());
}

TEST_F(ReboundDeviceTest, AClientThatWasGivenTheOlderOneIsTold) {
  StartAnew({});
  here_ = Join(w0_);
  const StreamId back = Open("red", session_.owner);
  ASSERT_TRUE(requests::Request(*cluster_, back, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(back)->granted().lease().lease_id(), old_.lease_id());
  there_ = Join(w1_);
  const v1::LeaseEnded ended = Next(back)->ended();
  EXPECT_EQ(ended.lease_id(), old_.lease_id());
  EXPECT_EQ(ended.reason(), "LEASE_SUPERSEDED");
}

TEST_F(ReboundDeviceTest, RestartedCoordinatorDoesNotKnowAllLeases) {
  // Only the workers know the leases of the last moments before the restart.
  const auto knows_all = [this](const Saved& saved) {
    v1::StoredSession stored;
    EXPECT_TRUE(stored.ParseFromString(saved.at("session/" + session_.owner)));
    return stored.all_leases_known();
  };
  EXPECT_TRUE(knows_all(with_old_));
  StartAnew(with_old_);
  EXPECT_FALSE(knows_all(persistence::Save(*cluster_)));
}

TEST_F(ReboundDeviceTest, LeaseMissingInAnIncompleteStoreIsAdopted) {
  // The store began with a process that knew the session only from a worker.
  // Leases that the store does not list may therefore be valid.
  StartAnew({});
  there_ = Join(w1_);
  const Saved incomplete = persistence::Save(*cluster_);
  v1::LeaseClaims claims = UncheckedClaims(w1_.sessions(0).lease());
  claims.set_lease_id("member");
  claims.set_member(1);
  claims.set_worker_id("w0");
  claims.set_session_epoch(1);
  *w0_.mutable_sessions(0)->mutable_lease() = Signed(claims, incomplete);
  StartAnew(incomplete);
  here_ = Join(w0_);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_THAT(Desired(here_)->drop_session_ids(), IsEmpty());
}

TEST_F(ReboundDeviceTest, LeaseGrantedAfterTheRestartStays) {
  // The client asked before any worker had reported a lease.
  StartAnew({});
  v1::WorkerState w2 = TestWorker("w2");
  const StreamId free = Join(w2);
  const StreamId back = Open("red", session_.owner);
  const v1::Lease here = Grant(back, 0, free, &w2);
  here_ = Join(w0_);
  there_ = Join(w1_);
  ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].lease_id(), here.lease_id());
  EXPECT_THAT(Desired(there_)->drop_session_ids(), ElementsAre(back.owner));
  EXPECT_EQ(Next(back), std::nullopt);
}

}  // namespace
}  // namespace djinn::coordinator
