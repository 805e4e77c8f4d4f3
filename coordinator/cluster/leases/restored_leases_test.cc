// Tests leases across a restart of the coordinator, with the state that it
// saved.
#include "common/base/error.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/leases/leases_fixture.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Starts another process with the state that the last one saved.
class RestoredClusterTest : public ClusterLeasesTest {
 protected:
  void RestartWithState() {
    const std::map<std::string, std::string> state =
        persistence::Save(*cluster_);
    Restart();
    ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
    w0_.set_applied_revision(0);
  }
};

TEST_F(RestoredClusterTest, KnowsSessionsAndLeases) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  const v1::Lease lease = Grant(session, 0, worker, &w0_);
  const std::string why =
      views::Leases(*cluster_, {}).items[0].placement_reason();
  RestartWithState();
  const v1::SessionInfo info = views::Sessions(*cluster_, {}).items[0];
  EXPECT_EQ(info.state(), v1::SessionInfo::DETACHED);
  EXPECT_EQ(info.tenant(), "red");
  EXPECT_EQ(info.program(), "test");
  EXPECT_EQ(info.session_epoch(), 1u);
  EXPECT_EQ(ErrorReason(Attach("blue", session.owner).status()),
            "SESSION_OF_OTHER_TENANT");
  worker = Join(w0_);
  ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].placement_reason(), why);
  // The client continues with its token, because the key is the same.
  EXPECT_EQ(UncheckedClaims(Desired(worker)->leases(0)).revision(), 2u);
  const StreamId back = Open("red", session.owner);
  ASSERT_TRUE(requests::Request(*cluster_, back, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(back)->granted().lease().lease_id(), lease.lease_id());
}

TEST_F(RestoredClusterTest, SignsWithTheSameKey) {
  const std::string key = Desired(Join(w0_))->lease_keys(0).key_id();
  RestartWithState();
  EXPECT_EQ(Desired(Join(w0_))->lease_keys(0).key_id(), key);
}

TEST_F(RestoredClusterTest, BillsOnlyWhatIsNew) {
  StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  Use(absl::Seconds(2), 10);
  Report(worker);
  RestartWithState();
  EXPECT_EQ(UsedBy("red"), absl::Seconds(2));
  Use(absl::Seconds(5), 10);
  Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(5));
}

TEST_F(RestoredClusterTest, DoesNotBillTwiceWhatWasSettled) {
  const auto [worker, session, lease] = Granted("red");
  lease_ = w0_.sessions(0).lease();
  sessions::Close(*cluster_, session);
  EndThere(absl::Seconds(3), false);
  Report(worker);
  // The worker does not know yet that the lease is settled.
  RestartWithState();
  const StreamId back = Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
  Keep();
  EXPECT_THAT(Desired(back)->settled_lease_ids(), SizeIs(1));
}

TEST_F(RestoredClusterTest, BillsWhatAKillTookBack) {
  const auto [worker, session, lease] = Granted("red");
  lease_ = w0_.sessions(0).lease();
  const std::map<std::string, std::string> state = persistence::Save(*cluster_);
  persistence::NoteKept(*cluster_);
  sessions::Close(*cluster_, session);
  EndThere(absl::Seconds(3), false);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
  // The process is killed before the next write; the worker was not notified
  // yet.
  EXPECT_THAT(Desired(worker)->settled_lease_ids(), IsEmpty());
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
  w0_.set_applied_revision(0);
  Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
}

TEST_F(RestoredClusterTest, BillsALeaseThatCameAndWentAfterTheLastSave) {
  const std::map<std::string, std::string> state = persistence::Save(*cluster_);
  const auto [worker, session, lease] = Granted("red");
  lease_ = w0_.sessions(0).lease();
  sessions::Close(*cluster_, session);
  EndThere(absl::Seconds(3), false);
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
  w0_.set_applied_revision(0);
  StreamId back = Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
  // The use is billed once, however often and by whatever process it is
  // reported.
  Report(back);
  RestartWithState();
  back = Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
  Keep();
  EXPECT_THAT(Desired(back)->settled_lease_ids(), SizeIs(1));
  w0_.clear_ended_leases();
  Report(back);
  EXPECT_EQ(persistence::Save(*cluster_).count(
                "account/" + UncheckedClaims(lease_).lease_id()),
            0u);
}

TEST_F(RestoredClusterTest, BillsWhatIsNewOnceItHasGivenUpWaiting) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  lease_ = w0_.sessions(0).lease();
  Use(absl::Seconds(2), 0);
  Report(worker);
  RestartWithState();
  clock_.Advance(config_.lease_valid_for + config_.lease_grace_period);
  coordinator::Tick(*cluster_);
  EndThere(absl::Seconds(3), false);
  Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(3));
}

TEST_F(RestoredClusterTest, BillsNothingUnknownOnceItHasForgottenTheLease) {
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 0, worker, &w0_);
  lease_ = w0_.sessions(0).lease();
  Use(absl::Seconds(2), 0);
  Report(worker);
  RestartWithState();
  clock_.Advance(config_.lease_valid_for + config_.lease_grace_period);
  coordinator::Tick(*cluster_);
  clock_.Advance(CreditLedger::kKeepRetired + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  // The account was removed, so the part of its use that was billed is unknown.
  EndThere(absl::Seconds(3), false);
  Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(2));
}

TEST_F(RestoredClusterTest, AWorkerThatWasAwayForLongIsBilledOnce) {
  // Tests a first process, and one with state.
  for (const bool restored : {false, true}) {
    cluster_.reset();
    w0_ = TestWorker("w0");
    Restart();
    if (restored) RestartWithState();
    StreamId worker = Join(w0_);
    Grant(Open("red"), 0, worker, &w0_);
    lease_ = w0_.sessions(0).lease();
    Use(absl::Seconds(100), 0);
    Report(worker);
    workers::Leave(*cluster_, worker);
    for (int i = 0; i < 70; ++i) {
      clock_.Advance(absl::Minutes(1));
      coordinator::Tick(*cluster_);
    }
    ASSERT_FALSE(views::GetWorker(*cluster_, "w0").ok());
    // The lease ended there meanwhile.
    EndThere(absl::Seconds(105), false);
    w0_.set_applied_revision(0);
    worker = Join(w0_);
    EXPECT_EQ(UsedBy("red"), absl::Seconds(105));
    RestartWithState();
    Join(w0_);
    EXPECT_EQ(UsedBy("red"), absl::Seconds(105));
  }
}

TEST_F(RestoredClusterTest, BelievesNoWorkerWithoutASignature) {
  Grant(Open("red"), 0, Join(w0_), &w0_);
  // The key of the signature is unknown.
  w0_.mutable_sessions(0)->mutable_lease()->set_key_id("0123456789abcdef");
  RestartWithState();
  const StreamId worker = Join(w0_);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), IsEmpty());
}

TEST_F(RestoredClusterTest, ForgetsUnreportedLeases) {
  Limit({.device_time = absl::Seconds(32)});
  Grant(Open("red"), 0, Join(w0_), &w0_);
  RestartWithState();
  coordinator::Tick(*cluster_);
  EXPECT_EQ(persistence::Save(*cluster_).count("account/" + LeaseId(w0_)), 1u);
  clock_.Advance(config_.lease_valid_for + config_.lease_grace_period);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(persistence::Save(*cluster_).count("lease/" + LeaseId(w0_)), 0u);
  EXPECT_EQ(ReservedBy("red"), absl::ZeroDuration());
  // The billed amount is kept for longer.
  EXPECT_EQ(persistence::Save(*cluster_).count("account/" + LeaseId(w0_)), 1u);
  clock_.Advance(CreditLedger::kKeepRetired + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(persistence::Save(*cluster_).count("account/" + LeaseId(w0_)), 0u);
}

TEST_F(RestoredClusterTest, RefusesWhatItCannotRead) {
  for (const char* key : {"session/x", "key/1", "account/a", "tenant/t"}) {
    Restart();
    const absl::Status status =
        persistence::Restore(*cluster_, {{key, "\xff"}});
    EXPECT_EQ(ErrorReason(status), "STORE_CORRUPT") << key;
    EXPECT_NE(status.message().find(key), std::string::npos);
  }
  // A key that is too short.
  v1::StoredKey stored;
  stored.set_seed("short");
  Restart();
  EXPECT_EQ(ErrorReason(persistence::Restore(
                *cluster_, {{"key/1", stored.SerializeAsString()}})),
            "STORE_CORRUPT");
}

}  // namespace
}  // namespace djinn::coordinator
