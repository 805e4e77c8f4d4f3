// Tests multi-worker devices.
#include "common/base/error.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/placement/stages.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ClusterMembersTest : public ClusterTest {
 protected:
  ClusterMembersTest()
      : session_(Open("red")), one_(Join(w0_)), two_(Join(w1_)) {
    first_ = Ask(0, 0);
    EXPECT_TRUE(first_.has_granted());
  }

  // Returns the response after both workers applied their desired states.
  v1::SessionResponse Ask(uint32_t device, uint32_t member,
                          uint64_t needed_bytes = 0, bool recovers = false) {
    v1::LeaseRequest request = TestLeaseRequest(device);
    request.set_member(member);
    request.set_needed_bytes(needed_bytes);
    request.set_recovers(recovers);
    EXPECT_EQ(requests::Request(*cluster_, session_, request),
              absl::OkStatus());
    Execute(one_, &w0_);
    if (!two_left_) Execute(two_, &w1_);
    return Next(session_).value_or(v1::SessionResponse());
  }

  void Return(const std::string& lease_id, bool unreachable = false) {
    v1::LeaseReturn returned;
    returned.set_lease_id(lease_id);
    returned.set_unreachable(unreachable);
    EXPECT_EQ(requests::Return(*cluster_, session_, returned),
              absl::OkStatus());
  }

  // Gives replica 1 a worker, which is then lost.
  void LoseSecond() {
    const v1::Lease lease = Ask(0, 1).granted().lease();
    ASSERT_EQ(lease.worker_id(), "w1");
    Return(lease.lease_id(), /*unreachable=*/true);
    workers::Leave(*cluster_, two_);
    two_left_ = true;
  }

  v1::WorkerState w1_ = TestWorker("w1");
  StreamId session_, one_, two_;
  bool two_left_ = false;
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
  // A repeated request gets the same lease.
  EXPECT_EQ(Ask(0, 1).granted().lease().lease_id(),
            second.granted().lease().lease_id());
  const v1::LeaseInfo info =
      *views::GetLease(*cluster_, second.granted().lease().lease_id());
  EXPECT_EQ(info.virtual_device(), 0u);
  EXPECT_EQ(info.member(), 1u);
  const v1::SessionExplanation explained =
      *explain::ExplainSession(*cluster_, session_.owner);
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
  // This worker is none of the device's.
  add("w7", 5, &w1_);
  ASSERT_EQ(workers::Report(*cluster_, one_, w0_), absl::OkStatus());
  ASSERT_EQ(workers::Report(*cluster_, two_, w1_), absl::OkStatus());
  const auto members = stages::MembersOf(*cluster_, session_, 0);
  ASSERT_TRUE(members.has_value());
  ASSERT_EQ(members->worker_ids.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(members->workers[i].link_bytes_per_second,
              members->worker_ids[i] == "w0" ? 1000 : 300);
  }
  const v1::WorkerInfo info = *views::GetWorker(*cluster_, "w1");
  ASSERT_EQ(info.links_size(), 2);
  EXPECT_EQ(info.links(0).worker_id(), "w0");
  EXPECT_EQ(info.links(0).bytes_per_second(), 300u);
  EXPECT_EQ(info.links(1).worker_id(), "w7");
}

TEST_F(ClusterMembersTest, StagesGetTheRoomThatEndedLeasesHadPromised) {
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_granted());
  const auto room = [&] {
    return stages::MembersOf(*cluster_, session_, 0)
        .value()
        .workers.at(1)
        .available_bytes;
  };
  EXPECT_EQ(room(), w1_.free_bytes());
  // The other tenant's lease goes to the second replica's worker.
  const std::string first_worker = first_.granted().lease().worker_id();
  ASSERT_TRUE(operations::Cordon(*cluster_, first_worker, true, false).ok());
  const StreamId other = Open("blue");
  ASSERT_TRUE(
      requests::Request(*cluster_, other, TestLeaseRequest(0, 7, 1 << 20))
          .ok());
  EXPECT_EQ(room(), w1_.free_bytes() - (1 << 20));
  sessions::Close(*cluster_, other);
  EXPECT_EQ(room(), w1_.free_bytes());
}

TEST_F(ClusterMembersTest, LastPlanIsExplained) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  v1::StageAnswer stages;
  stages.mutable_plan()->set_problem("no stages");
  v1::StageAnswer batch;
  batch.mutable_batch()->set_problem("no parts");
  for (const v1::StageAnswer& answer : {stages, batch}) {
    stages::Answer(*cluster_, session_, answer);
    EXPECT_TRUE(Next(session_).value_or(v1::SessionResponse()).has_stages());
  }
  const v1::SessionExplanation explained =
      *explain::ExplainSession(*cluster_, session_.owner);
  ASSERT_EQ(explained.devices_size(), 2);
  EXPECT_EQ(explained.devices(0).stages().problem(), "no stages");
  EXPECT_EQ(explained.devices(0).batch().problem(), "no parts");
  EXPECT_FALSE(explained.devices(1).has_batch());
  // A plan with the stages of micro-batches.
  v1::StageAnswer both;
  both.mutable_plan()->add_stages()->set_worker_id("w0");
  both.mutable_batch()->add_parts()->set_rows(3);
  stages::Answer(*cluster_, session_, both);
  const v1::DeviceExplanation device =
      explain::ExplainSession(*cluster_, session_.owner)->devices(0);
  EXPECT_EQ(device.stages().stages(0).worker_id(), "w0");
  EXPECT_EQ(device.batch().parts(0).rows(), 3u);
}

TEST_F(ClusterMembersTest, PlansAreRememberedByGraph) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  const auto answer = [&](const std::string& fingerprint, int stages) {
    v1::StageAnswer told;
    told.mutable_plan()->set_fingerprint(fingerprint);
    for (int i = 0; i < stages; ++i) told.mutable_plan()->add_stages();
    stages::Answer(*cluster_, session_, told);
    EXPECT_TRUE(Next(session_).value_or(v1::SessionResponse()).has_stages());
  };
  const auto stages = [&](const std::string& fingerprint, uint32_t device = 0) {
    return stages::InForce(*cluster_, session_, device, fingerprint)
        .stages_size();
  };
  answer("aa", 2);
  answer("bb", 3);
  EXPECT_EQ(stages("aa"), 2);
  EXPECT_EQ(stages("bb"), 3);
  EXPECT_EQ(stages("cc"), 0);
  EXPECT_EQ(stages("aa", /*device=*/1), 0);
  answer("aa", 1);
  EXPECT_EQ(stages("aa"), 1);
  // No plan was found this time, so that the session keeps the previous one.
  answer("aa", 0);
  EXPECT_EQ(stages("aa"), 1);
  const v1::SessionExplanation explained =
      *explain::ExplainSession(*cluster_, session_.owner);
  EXPECT_EQ(explained.devices(0).stages().fingerprint(), "aa");
  EXPECT_EQ(explained.devices(0).stages().stages_size(), 0);
  // A limited number of plans is kept.
  for (const char* const next : {"cc", "dd", "ee", "ff"}) answer(next, 2);
  EXPECT_EQ(stages("bb"), 0);
  EXPECT_EQ(stages("ff"), 2);
}

TEST_F(ClusterMembersTest, WithoutAWorkerItIsRefusedAtOnce) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  const v1::SessionResponse third = Ask(0, 2);
  ASSERT_TRUE(third.has_refused());
  EXPECT_EQ(third.refused().member(), 2u);
  EXPECT_FALSE(third.refused().reason().empty());
  // A request for another virtual device waits as usual.
  EXPECT_EQ(views::GetSession(*cluster_, session_.owner)
                ->pending_virtual_devices_size(),
            0);
}

TEST_F(ClusterMembersTest, OneThatLostItsWorkerPrefersAWorkerOfItsOwn) {
  LoseSecond();
  v1::WorkerState w2 = TestWorker("w2");
  const StreamId three = Join(w2);
  Ask(0, 1, 0, /*recovers=*/true);
  Execute(three, &w2);
  EXPECT_EQ(Next(session_)->granted().lease().worker_id(), "w2");
}

TEST_F(ClusterMembersTest, OneThatLostItsWorkerSharesTheLastOne) {
  LoseSecond();
  const v1::SessionResponse again = Ask(0, 1, 0, /*recovers=*/true);
  ASSERT_TRUE(again.has_granted());
  EXPECT_EQ(again.granted().member(), 1u);
  EXPECT_EQ(again.granted().lease().worker_id(),
            first_.granted().lease().worker_id());
}

TEST_F(ClusterMembersTest, OneThatLostItsWorkerWaitsForAnother) {
  LoseSecond();
  ASSERT_TRUE(operations::Cordon(
                  *cluster_, first_.granted().lease().worker_id(), true, false)
                  .ok());
  EXPECT_FALSE(Ask(0, 1, 0, /*recovers=*/true).has_refused());
  v1::WorkerState w2 = TestWorker("w2");
  const StreamId three = Join(w2);
  Execute(three, &w2);
  EXPECT_EQ(Next(session_)->granted().lease().worker_id(), "w2");
}

TEST_F(ClusterMembersTest, RoomIsNeededThere) {
  Tenant tenant = TestTenant("red");
  tenant.limits.set_memory_bytes(uint64_t{16} << 30);
  tenant.totals.set_memory_bytes(uint64_t{16} << 30);
  tenants::Set(*cluster_, {tenant, TestTenant("blue")});
  const v1::SessionResponse second = Ask(0, 1, uint64_t{9} << 30);
  ASSERT_TRUE(second.has_refused());
  EXPECT_TRUE(Ask(0, 1, uint64_t{7} << 30).has_granted());
}

TEST_F(ClusterMembersTest, QuotaRefusesAtOnce) {
  Tenant tenant = TestTenant("red");
  tenant.quotas[static_cast<size_t>(scheduler::Resource::kMemoryBytes)]
      .nominal = 1 << 30;  // what the first lease takes
  tenants::Set(*cluster_, {tenant, TestTenant("blue")});
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_refused());
  EXPECT_EQ(second.refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterMembersTest, ItStaysWhereItIs) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  v1::MigrateSessionRequest request;
  request.set_session_id(session_.owner);
  EXPECT_EQ(
      ErrorReason(operations::MigrateSession(*cluster_, request).status()),
      "SPANS_WORKERS");
}

TEST_F(ClusterMembersTest, OthersOfTheSessionGoAndItIsSaidThatItStays) {
  ASSERT_TRUE(Ask(0, 1).has_granted());
  ASSERT_TRUE(Ask(1, 0).has_granted());
  ASSERT_TRUE(Ask(2, 0).has_granted());
  v1::MigrateSessionRequest request;
  request.set_session_id(session_.owner);
  request.set_virtual_device(1);
  ASSERT_TRUE(operations::MigrateSession(*cluster_, request).ok());
  request.clear_virtual_device();
  const auto response = operations::MigrateSession(*cluster_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->migrations_size(), 1);
  EXPECT_EQ(response->migrations(0).virtual_device(), 2u);
  // The device is listed once, although two workers have a part of it.
  ASSERT_EQ(response->failures_size(), 2);
  EXPECT_EQ(response->failures(0).virtual_device(), 0u);
  EXPECT_EQ(response->failures(0).reason(), "SPANS_WORKERS");
  EXPECT_EQ(response->failures(0).message(),
            "the virtual device spans workers");
  EXPECT_EQ(response->failures(1).virtual_device(), 1u);
  EXPECT_EQ(response->failures(1).reason(), "ALREADY_MIGRATING");
  // No device migrates, so the error is the reason of the first one.
  EXPECT_EQ(
      ErrorReason(operations::MigrateSession(*cluster_, request).status()),
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

TEST_F(ClusterMembersTest, ReturnedLeaseFreesQuota) {
  Tenant tenant = TestTenant("red");
  tenant.quotas[static_cast<size_t>(scheduler::Resource::kMemoryBytes)]
      .nominal = uint64_t{2} << 30;  // what two leases take
  tenants::Set(*cluster_, {tenant, TestTenant("blue")});
  const v1::SessionResponse second = Ask(0, 1);
  ASSERT_TRUE(second.has_granted());
  EXPECT_EQ(Ask(0, 2).refused().reason(), "QUOTA_EXCEEDED");
  Return(second.granted().lease().lease_id());
  EXPECT_EQ(ErrorReason(
                views::GetLease(*cluster_, second.granted().lease().lease_id())
                    .status()),
            "LEASE_UNKNOWN");
  // The worker must drop the session first.
  EXPECT_EQ(Ask(0, 1).refused().reason(), "NO_SUITABLE_WORKER");
  const v1::SessionResponse again = Ask(0, 1);
  ASSERT_TRUE(again.has_granted());
  EXPECT_EQ(again.granted().lease().worker_id(), "w1");
  EXPECT_NE(again.granted().lease().lease_id(),
            second.granted().lease().lease_id());
  EXPECT_GT(again.granted().lease().session_epoch(),
            second.granted().lease().session_epoch());
  EXPECT_TRUE(
      views::GetLease(*cluster_, first_.granted().lease().lease_id()).ok());
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_returned_leases_total{why=\"unused\"} 1\n"));
}

TEST_F(ClusterMembersTest, AnotherWorkerComesBeforeTheOneThatWasNotReached) {
  v1::WorkerState w2 = TestWorker("w2");
  const std::string w1 = Ask(0, 1).granted().lease().worker_id();
  ASSERT_EQ(w1, "w1");
  const StreamId three = Join(w2);
  const auto ask = [&] {
    v1::LeaseRequest request = TestLeaseRequest(0);
    request.set_member(1);
    EXPECT_EQ(requests::Request(*cluster_, session_, request),
              absl::OkStatus());
    Execute(one_, &w0_);
    Execute(two_, &w1_);
    Execute(three, &w2);
    return Next(session_)->granted().lease();
  };
  Return(ask().lease_id(), /*unreachable=*/true);
  Execute(two_, &w1_);
  const v1::Lease other = ask();
  EXPECT_EQ(other.worker_id(), "w2");
  Return(other.lease_id());
  Execute(three, &w2);
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(ask().worker_id(), "w1");
}

TEST_F(ClusterMembersTest, OnlyItsOwnLeasesASessionGivesBack) {
  const std::string own = first_.granted().lease().lease_id();
  const StreamId blue = Open("blue"), red = Open("red");
  for (const StreamId& other : {blue, red}) {
    v1::LeaseReturn returned;
    returned.set_lease_id(own);
    EXPECT_EQ(requests::Return(*cluster_, other, returned), absl::OkStatus());
    EXPECT_FALSE(Next(other).has_value());
  }
  EXPECT_TRUE(views::GetLease(*cluster_, own).ok());
  Execute(one_, &w0_);
  EXPECT_EQ(w0_.sessions_size(), 1);
  // Returns a lease that never existed, and the same one twice.
  Return("0123456789abcdef");
  Return(own);
  Return(own);
  Execute(one_, &w0_);
  EXPECT_EQ(w0_.sessions_size(), 0);
  for (const std::string& id : {std::string(), std::string(65, 'x')}) {
    v1::LeaseReturn returned;
    returned.set_lease_id(id);
    EXPECT_EQ(ErrorReason(requests::Return(*cluster_, session_, returned)),
              "PROTOCOL_VIOLATION");
  }
}

TEST_F(ClusterMembersTest, ALeaseThatAnotherDeviceLeavesAtItsWorkerStaysGone) {
  const v1::Lease second = Ask(1, 0).granted().lease();
  const v1::Lease third = Ask(2, 0).granted().lease();
  const bool at_w0 = third.worker_id() == "w0";
  v1::WorkerState& state = at_w0 ? w0_ : w1_;
  ASSERT_EQ(state.sessions_size(), 2);
  Return(third.lease_id());
  StreamId worker = at_w0 ? one_ : two_;
  // The worker keeps the session, and ends the lease as soon as it is notified.
  EXPECT_EQ(workers::Report(*cluster_, worker, state), absl::OkStatus());
  EXPECT_FALSE(views::GetLease(*cluster_, third.lease_id()).ok());
  const std::optional<v1::DesiredState> desired = Desired(worker);
  EXPECT_THAT(desired->drop_lease_ids(), ElementsAre(third.lease_id()));
  EXPECT_THAT(desired->drop_session_ids(), IsEmpty());
  // The worker is notified until it has ended the lease, also on another
  // stream.
  state.set_applied_revision(0);
  worker = Join(state);
  EXPECT_FALSE(views::GetLease(*cluster_, third.lease_id()).ok());
  Execute(worker, &state);
  EXPECT_EQ(state.sessions_size(), 1);
  EXPECT_TRUE(views::GetLease(*cluster_, second.lease_id()).ok());
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->drop_lease_ids(), IsEmpty());
}

TEST_F(ClusterMembersTest, ARestartedCoordinatorDoesNotKeepWhatIsGivenBack) {
  const v1::Lease second = Ask(0, 1).granted().lease();
  for (const bool worker_first : {true, false}) {
    Restart();
    if (worker_first) two_ = Join(w1_);
    session_ = Open("red", session_.owner);
    Return(second.lease_id());
    if (!worker_first) two_ = Join(w1_);
    EXPECT_FALSE(views::GetLease(*cluster_, second.lease_id()).ok());
    EXPECT_THAT(Desired(two_)->drop_session_ids(), ElementsAre(session_.owner));
  }
}

TEST_F(ClusterMembersTest, AMemberBeyondTheLastIsAViolation) {
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_member(kMaxMembers);
  EXPECT_EQ(ErrorReason(requests::Request(*cluster_, session_, request)),
            "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::coordinator
