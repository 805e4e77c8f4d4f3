// Virtual devices that span workers.
#include "common/error.h"
#include "coordinator/cluster_fixture.h"

namespace djinn::coordinator {
namespace {

class ClusterMembersTest : public ClusterTest {
 protected:
  ClusterMembersTest()
      : session_(Open("red")), one_(Join(w0_)), two_(Join(w1_)) {
    first_ = Ask(0, 0);
    EXPECT_TRUE(first_.has_granted());
  }

  // The answer, after both workers carried out what they are told.
  v1::SessionResponse Ask(uint32_t device, uint32_t member,
                          uint64_t needed_bytes = 0) {
    v1::LeaseRequest request = TestLeaseRequest(device);
    request.set_member(member);
    request.set_needed_bytes(needed_bytes);
    EXPECT_EQ(cluster_->RequestLease(session_, request), absl::OkStatus());
    CarryOut(one_, &w0_);
    CarryOut(two_, &w1_);
    return Next(session_).value_or(v1::SessionResponse());
  }

  v1::WorkerState w1_ = TestWorker("w1");
  StreamId session_, one_, two_;
  v1::SessionResponse first_;
};

TEST_F(ClusterMembersTest, EachMemberHasAWorkerOfItsOwn) {
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_granted());
  EXPECT_EQ(second.granted().member(), 1u);
  EXPECT_NE(second.granted().lease().worker_id(),
            first_.granted().lease().worker_id());
  EXPECT_NE(second.granted().lease().lease_id(),
            first_.granted().lease().lease_id());
  // Asked for again it is the same.
  EXPECT_EQ(Ask(0, 1).granted().lease().lease_id(),
            second.granted().lease().lease_id());
  const v1::LeaseInfo info =
      *cluster_->GetLease(second.granted().lease().lease_id());
  EXPECT_EQ(info.virtual_device(), 0u);
  EXPECT_EQ(info.member(), 1u);
  const v1::SessionExplanation explained =
      *cluster_->ExplainSession(session_.owner);
  ASSERT_EQ(explained.devices_size(), 2);
  EXPECT_EQ(explained.devices(0).member(), 0u);
  EXPECT_EQ(explained.devices(1).member(), 1u);
}

TEST_F(ClusterMembersTest, StagesGoByTheLinksThatWereMeasured) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  w0_.set_link_bytes_per_second(1000);
  w1_.set_link_bytes_per_second(2000);
  const auto add = [](const char* from, uint64_t rate, v1::WorkerState* state) {
    state->add_links()->set_worker_id(from);
    state->mutable_links()->rbegin()->set_bytes_per_second(rate);
  };
  add("w0", 300, &w1_);
  // Not one of the device's.
  add("w7", 5, &w1_);
  ASSERT_EQ(cluster_->Report(one_, w0_), absl::OkStatus());
  ASSERT_EQ(cluster_->Report(two_, w1_), absl::OkStatus());
  const auto members = cluster_->MembersForStages(session_, 0);
  ASSERT_TRUE(members.has_value());
  ASSERT_EQ(members->worker_ids.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(members->workers[i].link_bytes_per_second,
              members->worker_ids[i] == "w0" ? 1000 : 300);
  }
  const v1::WorkerInfo info = *cluster_->GetWorker("w1");
  ASSERT_EQ(info.links_size(), 2);
  EXPECT_EQ(info.links(0).worker_id(), "w0");
  EXPECT_EQ(info.links(0).bytes_per_second(), 300u);
  EXPECT_EQ(info.links(1).worker_id(), "w7");
}

TEST_F(ClusterMembersTest, WhatWasCutLastIsExplained) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  v1::StageAnswer stages;
  stages.mutable_plan()->set_problem("no stages");
  v1::StageAnswer batch;
  batch.mutable_batch()->set_problem("no parts");
  for (const v1::StageAnswer& answer : {stages, batch}) {
    cluster_->AnswerStages(session_, answer);
    EXPECT_TRUE(Next(session_).value_or(v1::SessionResponse()).has_stages());
  }
  const v1::SessionExplanation explained =
      *cluster_->ExplainSession(session_.owner);
  ASSERT_EQ(explained.devices_size(), 2);
  EXPECT_EQ(explained.devices(0).stages().problem(), "no stages");
  EXPECT_EQ(explained.devices(0).batch().problem(), "no parts");
  EXPECT_FALSE(explained.devices(1).has_batch());
}

TEST_F(ClusterMembersTest, WithoutAWorkerItIsRefusedAtOnce) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  const v1::SessionResponse third = Ask(0, 2);
  ASSERT_TRUE(third.has_refused());
  EXPECT_EQ(third.refused().member(), 2u);
  EXPECT_FALSE(third.refused().reason().empty());
  // Another virtual device waits, as ever.
  EXPECT_EQ(
      cluster_->GetSession(session_.owner)->pending_virtual_devices_size(), 0);
}

TEST_F(ClusterMembersTest, RoomIsNeededThere) {
  const v1::SessionResponse second = Ask(0, 1, uint64_t{9} << 30);
  ASSERT_TRUE(second.has_refused());
  EXPECT_TRUE(Ask(0, 1, uint64_t{7} << 30).has_granted());
}

TEST_F(ClusterMembersTest, QuotaRefusesAtOnce) {
  Tenant tenant = TestTenant("red");
  tenant.quotas[static_cast<size_t>(scheduler::Resource::kMemoryBytes)]
      .nominal = 1 << 30;  // what the first lease takes
  cluster_->SetTenants({tenant, TestTenant("blue")});
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_refused());
  EXPECT_EQ(second.refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterMembersTest, ItStaysWhereItIs) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  v1::MigrateSessionRequest request;
  request.set_session_id(session_.owner);
  EXPECT_EQ(ErrorReason(cluster_->MigrateSession(request).status()),
            "SPANS_WORKERS");
}

TEST_F(ClusterMembersTest, ARestartedCoordinatorAdoptsTheMembers) {
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_granted());
  Restart();
  one_ = Join(w0_);
  two_ = Join(w1_);
  session_ = Open("red", session_.owner);
  EXPECT_EQ(Ask(0, 1).granted().lease().lease_id(),
            second.granted().lease().lease_id());
  EXPECT_EQ(Ask(0, 0).granted().lease().lease_id(),
            first_.granted().lease().lease_id());
}

TEST_F(ClusterMembersTest, AMemberBeyondTheLastIsAViolation) {
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_member(Cluster::kMaxMembers);
  EXPECT_EQ(ErrorReason(cluster_->RequestLease(session_, request)),
            "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::coordinator
