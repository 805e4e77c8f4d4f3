// What a coordinator that has started anew takes over from workers and clients.
#include <memory>
#include <string>

#include "common/error.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/cluster_fixture.h"
#include "coordinator/testing.h"
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
  ASSERT_THAT(cluster_->Sessions().items, SizeIs(1));
  EXPECT_EQ(cluster_->Sessions().items[0].state(), v1::SessionInfo::ADOPTED);
  EXPECT_EQ(cluster_->Sessions().items[0].tenant(), "red");
  const v1::DesiredState desired = *Desired(worker);
  EXPECT_THAT(desired.drop_session_ids(), IsEmpty());
  ASSERT_THAT(desired.leases(), SizeIs(1));
  const v1::LeaseClaims claims = UncheckedClaims(desired.leases(0));
  EXPECT_EQ(claims.lease_id(), lease.lease_id());
  EXPECT_EQ(claims.session_id(), session.owner);
  EXPECT_EQ(claims.issue(), 2u);

  EXPECT_EQ(ErrorReason(Attach("blue", session.owner).status()),
            "SESSION_OF_OTHER_TENANT");
  session = Open("red", session.owner);
  EXPECT_EQ(cluster_->Sessions().items[0].state(), v1::SessionInfo::ATTACHED);
  ASSERT_TRUE(cluster_->RequestLease(session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(session)->granted().lease().lease_id(), lease.lease_id());
}

TEST_F(ClusterAdoptionTest, AdoptedSessionThatNobodyClaimsIsDropped) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  Restart();
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  Desired(worker);
  clock_.Advance(config_.session_timeout);
  ASSERT_TRUE(cluster_->Report(worker, w0_).ok());
  cluster_->Tick();
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
  // Its request finds the lease that the worker then tells of.
  ASSERT_TRUE(cluster_->RequestLease(session, TestLeaseRequest(0)).ok());
  w0_.set_applied_revision(0);
  Join(w0_);
  EXPECT_EQ(Next(session)->granted().lease().lease_id(), lease.lease_id());
  EXPECT_EQ(Next(session), std::nullopt);
  EXPECT_THAT(cluster_->Leases().items, SizeIs(1));
}

TEST_F(ClusterAdoptionTest, SessionOfATenantThatIsNoMoreIsDroppedNotAdopted) {
  StreamId worker = Join(w0_);
  const StreamId red = Open("red");
  Grant(red, 0, worker, &w0_);
  const StreamId blue = Open("blue");
  Grant(blue, 0, worker, &w0_);
  Tenants without_red({TestTenant("blue")});
  cluster_ =
      std::make_unique<Cluster>(&config_, &without_red, &clock_, &random_);
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  ASSERT_THAT(cluster_->Sessions().items, SizeIs(1));
  EXPECT_EQ(cluster_->Sessions().items[0].tenant(), "blue");
  CarryOut(worker, &w0_);
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
  EXPECT_THAT(cluster_->Sessions().items, SizeIs(5));
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
  EXPECT_THAT(cluster_->Leases().items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
