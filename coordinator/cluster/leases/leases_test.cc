// Tests lease revisions, lease keys, and the use of leases.
#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/leases/leases_fixture.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ClusterLeasesTest, OldestPendingAgeIsReported) {
  const auto age = [this](const std::string& value) {
    return Metrics().find("djinn_oldest_pending_age_seconds{tenant=\"red\"} " +
                          value + "\n") != std::string::npos;
  };
  const StreamId session = Open("red");
  EXPECT_TRUE(age("0"));
  EXPECT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(1)).ok());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(age("3"));
}

TEST_F(ClusterLeasesTest, TheWorkerCanCheckWhatItIsTold) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(3)).ok());
  const v1::DesiredState desired = *Desired(worker);
  ASSERT_THAT(desired.lease_keys(), SizeIs(1));
  LeaseVerifier verifier;
  ASSERT_TRUE(verifier.Learn(desired.lease_keys(0)).ok());
  const absl::StatusOr<v1::LeaseClaims> claims =
      verifier.Verify(desired.leases(0));
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->tenant(), "red");
  EXPECT_EQ(claims->virtual_device(), 3u);
}

TEST_F(ClusterLeasesTest, IsSignedAgainLongBeforeItExpires) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  const absl::Duration life =
      config_.lease_valid_for + config_.lease_grace_period;
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->leases(), IsEmpty());
  clock_.Advance(life / 2);
  Report(worker);
  const v1::LeaseClaims claims = *Listed(worker);
  EXPECT_EQ(claims.revision(), 2u);
  EXPECT_EQ(claims.expire_time().seconds() - claims.issue_time().seconds(),
            absl::ToInt64Seconds(2 * life));
}

TEST_F(ClusterLeasesTest, UnknownFieldsOfAPriorityAreNotSigned) {
  const auto add = [](google::protobuf::Message* message) {
    message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(
        99, std::string(1 << 20, 'x'));
  };
  const StreamId worker = Join(w0_);
  v1::OpenSession open = TestOpen();
  open.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
  add(open.mutable_urgency());
  const StreamId session =
      *sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                        std::make_shared<CountingWaker>());
  EXPECT_TRUE(Next(session)->has_opened());
  Grant(session, 0, worker, &w0_);
  EXPECT_LT(w0_.sessions(0).lease().ByteSizeLong(), 1000u);
  v1::Urgency urgency = open.urgency();
  urgency.mutable_run_deadline()->set_seconds(3);
  add(urgency.mutable_run_deadline());
  ASSERT_TRUE(sessions::SetUrgency(*cluster_, session, urgency).ok());
  const v1::DesiredState desired = *Desired(worker);
  EXPECT_LT(desired.ByteSizeLong(), 2000u);
  const v1::Urgency signed_urgency =
      UncheckedClaims(desired.leases(0)).urgency();
  EXPECT_EQ(signed_urgency.priority_class(), v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(signed_urgency.run_deadline().seconds(), 3);
  for (const auto& [key, value] : persistence::Save(*cluster_)) {
    EXPECT_LT(value.size(), 1000u) << key;
  }
}

TEST_F(ClusterLeasesTest, FrequentPriorityChangesAreSignedAtIntervals) {
  const auto [worker, session, lease] = Granted("red");
  v1::Urgency urgency;
  size_t told = 0;
  for (int i = 1; i <= 100; ++i) {
    urgency.mutable_run_deadline()->set_seconds(i);
    ASSERT_TRUE(sessions::SetUrgency(*cluster_, session, urgency).ok());
    told += Desired(worker).has_value() ? 1 : 0;
  }
  EXPECT_GT(told, 1u);
  EXPECT_LE(told, 8u);
  // The last change also arrives.
  clock_.Advance(absl::Milliseconds(250));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Listed(worker)->urgency().run_deadline().seconds(), 100);
  clock_.Advance(absl::Milliseconds(250));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Desired(worker), std::nullopt);
}

TEST_F(ClusterLeasesTest, RotatesKeysWithAnOverlap) {
  Keep();
  const StreamId worker = Join(w0_);
  const std::string first = Desired(worker)->lease_keys(0).key_id();
  clock_.Advance(config_.lease_key_lifetime);
  Report(worker);
  coordinator::Tick(*cluster_);
  v1::DesiredState desired = *Desired(worker);
  ASSERT_THAT(desired.lease_keys(), SizeIs(2));
  EXPECT_EQ(desired.lease_keys(0).key_id(), first);
  EXPECT_THAT(desired.retired_lease_key_ids(), IsEmpty());
  const std::string second = desired.lease_keys(1).key_id();
  Keep();
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Desired(worker)->leases(0).key_id(), second);
  clock_.Advance(2 * (config_.lease_valid_for + config_.lease_grace_period));
  Report(worker);
  coordinator::Tick(*cluster_);
  desired = *Desired(worker);
  ASSERT_THAT(desired.lease_keys(), SizeIs(1));
  EXPECT_EQ(desired.lease_keys(0).key_id(), second);
  EXPECT_THAT(desired.retired_lease_key_ids(), ElementsAre(first));
}

TEST_F(ClusterLeasesTest, ANewKeySignsOnceItIsKept) {
  Keep();
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  const std::string first = Desired(worker)->lease_keys(0).key_id();
  clock_.Advance(config_.lease_key_lifetime);
  Report(worker);
  coordinator::Tick(*cluster_);
  // It is unknown whether this state reaches the disk.
  persistence::Save(*cluster_);
  Grant(session, 0, worker, &w0_);
  EXPECT_EQ(w0_.sessions(0).lease().key_id(), first);
  // Until the second key is known to be saved, the first one stays.
  const absl::Duration overlap =
      2 * (config_.lease_valid_for + config_.lease_grace_period);
  clock_.Advance(overlap);
  Report(worker);
  coordinator::Tick(*cluster_);
  v1::DesiredState desired = *Desired(worker);
  EXPECT_EQ(desired.leases(0).key_id(), first);
  ASSERT_THAT(desired.lease_keys(), SizeIs(2));
  const std::string second = desired.lease_keys(1).key_id();
  persistence::NoteKept(*cluster_);
  clock_.Advance(overlap / 2);
  Report(worker);
  coordinator::Tick(*cluster_);
  desired = *Desired(worker);
  EXPECT_EQ(desired.leases(0).key_id(), second);
  EXPECT_THAT(desired.retired_lease_key_ids(), IsEmpty());
  clock_.Advance(overlap / 2);
  Report(worker);
  coordinator::Tick(*cluster_);
  EXPECT_THAT(Desired(worker)->retired_lease_key_ids(), ElementsAre(first));
}

TEST_F(ClusterLeasesTest, CreditIsGrantedInSlicesAndReserved) {
  Limit({.device_time = absl::Seconds(32)});
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  EXPECT_EQ(UncheckedClaims(w0_.sessions(0).lease())
                .credits()
                .device_time()
                .seconds(),
            2);
  EXPECT_EQ(ReservedBy("red"), absl::Seconds(2));
  Use(absl::Seconds(1), 7);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(1));
  EXPECT_EQ(Listed(worker), std::nullopt);
  Use(absl::Seconds(1.5), 9);
  Report(worker);
  // The revision is sent at once, not with the next heartbeat.
  const v1::LeaseClaims claims = *Listed(worker);
  EXPECT_EQ(claims.revision(), 2u);
  EXPECT_EQ(FromProtoDuration(claims.credits().device_time()),
            absl::Seconds(3.5));
  EXPECT_FALSE(claims.credits().has_bytes());
  const v1::LeaseInfo info = views::Leases(*cluster_, {}).items[0];
  EXPECT_EQ(FromProtoDuration(info.lease_use().device_time()),
            absl::Seconds(1.5));
  EXPECT_EQ(info.lease_use().bytes(), 9u);
  EXPECT_EQ(FromProtoDuration(info.credits().device_time()),
            absl::Seconds(3.5));
  EXPECT_EQ(UsedBy("blue"), absl::ZeroDuration());
}

TEST_F(ClusterLeasesTest, OperatorsSeeThatALeaseIsOutOfCredit) {
  Limit({.device_time = absl::Seconds(1)});
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  Use(absl::Seconds(1), 0);
  w0_.mutable_sessions(0)->set_out_of_credit(true);
  Report(worker);
  EXPECT_EQ(Listed(worker), std::nullopt);
  EXPECT_TRUE(views::Leases(*cluster_, {}).items[0].out_of_credit());
}

TEST_F(ClusterLeasesTest, TheUnusedComesBackAndTheLastStepsAreBilled) {
  Limit({.device_time = absl::Seconds(32)});
  const auto [worker, session, lease] = Granted("red");
  lease_ = w0_.sessions(0).lease();
  Use(absl::Milliseconds(100), 0);
  Report(worker);
  sessions::Close(*cluster_, session);
  EXPECT_EQ(ReservedBy("red"), absl::ZeroDuration());
  w0_.set_applied_revision(Desired(worker)->revision());
  EndThere(absl::Milliseconds(300), /*measuring=*/true);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Milliseconds(300));
  EndThere(absl::Milliseconds(500), /*measuring=*/false);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Milliseconds(500));
  // The worker reports the end until it learns that it was saved.
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->settled_lease_ids(), IsEmpty());
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Milliseconds(500));
  // A final report is considered once; later ones change nothing.
  EndThere(absl::Milliseconds(900), /*measuring=*/false);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Milliseconds(500));
  Keep();
  EXPECT_THAT(Desired(worker)->settled_lease_ids(),
              ElementsAre(UncheckedClaims(lease_).lease_id()));
  // The worker forgets the lease.
  w0_.clear_ended_leases();
  Report(worker);
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->settled_lease_ids(), IsEmpty());
  EXPECT_EQ(UsedBy("red"), absl::Milliseconds(500));
}

TEST_F(ClusterLeasesTest, LeasesThatAreReturnedBesideAnotherMintNoCredit) {
  Limit({.device_time = absl::Seconds(32)});
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 1, worker, &w0_);
  for (int i = 0; i < 40; ++i) {
    v1::LeaseReturn returned;
    returned.set_lease_id(Grant(session, 0, worker, &w0_).lease_id());
    EXPECT_EQ(requests::Return(*cluster_, session, returned), absl::OkStatus());
    // The worker holds two leases at a time, and none of them twice.
    EXPECT_THAT(w0_.sessions(), SizeIs(2));
  }
  Execute(worker, &w0_);
  EXPECT_THAT(w0_.sessions(), SizeIs(1));
  EXPECT_EQ(ReservedBy("red"), absl::Seconds(2));
}

TEST_F(ClusterLeasesTest, WorkerThatKeepsAnEndedLeaseChangesNothing) {
  Limit({.device_time = absl::Seconds(32)});
  StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  Grant(session, 1, worker, &w0_);
  v1::LeaseReturn returned;
  returned.set_lease_id(Grant(session, 0, worker, &w0_).lease_id());
  EXPECT_EQ(requests::Return(*cluster_, session, returned), absl::OkStatus());
  // The worker acknowledges the end but still reports the lease, which is
  // neither adopted nor renewed.
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(config_.heartbeat_interval);
    const std::optional<v1::DesiredState> desired = Desired(worker);
    EXPECT_THAT(desired->drop_lease_ids(), SizeIs(i == 0 ? 1 : 0));
    EXPECT_THAT(desired->leases(), IsEmpty());
    w0_.set_applied_revision(desired->revision());
    Report(worker);
    EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
    EXPECT_EQ(ReservedBy("red"), absl::Seconds(2));
  }
}

TEST_F(ClusterLeasesTest, UseOfEndedLeasesBeyondTheRateIsOwed) {
  SetRate(0.1);
  const StreamId worker = Join(w0_);
  for (int i = 0; i < 20; ++i) {
    RunProgram(worker, absl::Seconds(9), absl::Seconds(9));
    clock_.Advance(absl::Seconds(1));
  }
  // The bound is 200 seconds at that rate, ten seconds at once, and one turn.
  EXPECT_LE(UsedBy("red"), absl::Seconds(20 + 1 + 9));
}

TEST_F(ClusterLeasesTest, UnusedCreditOfEndedLeasesIsReturned) {
  SetRate(0.5);
  const StreamId worker = Join(w0_);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(RunProgram(worker, absl::Milliseconds(1), absl::Seconds(0.2)),
              absl::Seconds(0.5));
  }
}

TEST_F(ClusterLeasesTest, UseOfAnotherWorkersLeaseIsNotBilled) {
  Limit({.device_time = absl::Seconds(32)});
  const auto [worker, session, lease] = Granted("red");
  v1::LeaseClaims claims;
  claims.set_lease_id(lease.lease_id());
  claims.set_session_id(session.owner);
  claims.set_tenant("red");
  claims.set_worker_id("w1");
  claims.set_worker_incarnation(1);
  v1::WorkerState other = TestWorker("w1");
  v1::HeldSession* const held = other.add_sessions();
  held->mutable_lease()->set_claims(claims.SerializeAsString());
  held->mutable_lease_use()->mutable_device_time()->set_seconds(1000);
  held->set_out_of_credit(true);
  v1::EndedLease* const ended = other.add_ended_leases();
  *ended->mutable_lease() = held->lease();
  *ended->mutable_use() = held->lease_use();
  Join(other);
  EXPECT_EQ(UsedBy("red"), absl::ZeroDuration());
  EXPECT_EQ(ReservedBy("red"), absl::Seconds(2));
  EXPECT_FALSE(views::Leases(*cluster_, {}).items[0].out_of_credit());
  Use(absl::Seconds(1), 0);
  Report(worker);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(1));
}

TEST_F(ClusterLeasesTest, ALeaseThatEndedAtTheWorkerEndsForTheClient) {
  const auto [worker, session, lease] = Granted("red");
  lease_ = w0_.sessions(0).lease();
  EndThere(absl::Seconds(1), false);
  Report(worker);
  EXPECT_EQ(Next(session)->ended().reason(), "LEASE_EXPIRED");
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_EQ(UsedBy("red"), absl::Seconds(1));
}

TEST_F(ClusterLeasesTest, ARestartedCoordinatorGoesOnWithWhatWasGranted) {
  Limit({.device_time = absl::Seconds(32)});
  StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  Use(absl::Seconds(1), 0);
  Limit({.device_time = absl::Seconds(32)});
  w0_.set_applied_revision(0);
  worker = Join(w0_);
  EXPECT_EQ(UsedBy("red"), absl::Seconds(1));
  EXPECT_EQ(ReservedBy("red"), absl::Seconds(1));
  EXPECT_EQ(FromProtoDuration(Listed(worker)->credits().device_time()),
            absl::Seconds(2));
}

TEST_F(ClusterLeasesTest, ForgedLeaseIsNotAdopted) {
  const auto [worker, session, lease] = Granted("red");
  // The forged lease charges another tenant, in another session.
  v1::SignedLease forged = w0_.sessions(0).lease();
  v1::LeaseClaims claims = UncheckedClaims(forged);
  claims.set_lease_id("forged");
  claims.set_tenant("blue");
  claims.set_session_id(std::string(32, 'f'));
  forged.set_claims(claims.SerializeAsString());
  Hold(forged, &w0_);
  v1::EndedLease* const ended = w0_.add_ended_leases();
  *ended->mutable_lease() = forged;
  ended->mutable_use()->mutable_device_time()->set_seconds(1000);
  Report(worker);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(UsedBy("blue"), absl::ZeroDuration());
}

TEST_F(ClusterLeasesTest, ALeaseOfAnotherWorkerIsNotAdopted) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  v1::WorkerState w1 = TestWorker("w1");
  *w1.add_sessions() = w0_.sessions(0);
  workers::Leave(*cluster_, worker);
  Restart();
  Join(w1);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
