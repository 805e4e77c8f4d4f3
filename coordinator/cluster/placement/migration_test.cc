// Tests migrations of virtual devices, with the streams played by hand.
#include "coordinator/cluster/placement/migration.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/migration_fixture.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/tables/cluster_limits.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using testing::ElementsAre;

TEST_F(ClusterMigrationTest, TheLeaseThatIsUsedStays) {
  const v1::MigrationRequest request = AskedToMigrate();
  EXPECT_EQ(request.from_lease_id(), lease_.lease_id());
  EXPECT_EQ(request.to().virtual_device(), 0u);
  EXPECT_EQ(request.to().lease().worker_id(), "w1");
  EXPECT_EQ(request.to().lease().session_epoch(), 2u);
  EXPECT_EQ(Last().state(), v1::MigrationInfo::UNDER_WAY);
  // Each worker may fetch from the other.
  Execute(here_, &w0_);
  EXPECT_EQ(Workers().size(), 2u);
  Note(OutcomeOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
  EXPECT_THAT(Desired(here_)->drop_session_ids(), ElementsAre(session_.owner));
  const v1::MigrationInfo done = Last();
  EXPECT_EQ(done.state(), v1::MigrationInfo::DONE);
  EXPECT_EQ(done.from_worker_id(), "w0");
  EXPECT_EQ(done.to_worker_id(), "w1");
  EXPECT_EQ(done.reason(), "operator");
  EXPECT_EQ(done.moved_bytes(), 1000u);
  EXPECT_EQ(done.held_bytes(), 24u);
  EXPECT_EQ(FromProtoDuration(done.paused()), absl::Milliseconds(40));
  EXPECT_THAT(
      Metrics(),
      testing::HasSubstr(
          R"(djinn_migrations_total{reason="operator",result="done"} 1)"));
  // The next revision no longer says that the migration may fail.
  const std::optional<v1::DesiredState> desired = Desired(there_);
  EXPECT_EQ(UncheckedClaims(desired->leases(0)).migrates_from(), "");
  // For a client that attached again, the device is where it migrated.
  ASSERT_TRUE(requests::Request(*cluster_, session_, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(session_)->granted().lease().worker_id(), "w1");
  // A repeated outcome changes nothing.
  Note(OutcomeOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
}

TEST_F(ClusterMigrationTest, OneThatRestartsAsksTheClientAgain) {
  const v1::MigrationRequest request = AskedToMigrate();
  // The client has not got the request.
  Restart();
  session_ = Open("red", session_.owner);
  here_ = Join(w0_);
  there_ = Join(w1_);
  Tick(*cluster_);
  EXPECT_EQ(Next(session_), std::nullopt);
  clock_.Advance(absl::Seconds(2));
  Execute(here_, &w0_);
  Execute(there_, &w1_);
  Tick(*cluster_);
  const std::optional<v1::SessionResponse> again = Next(session_);
  ASSERT_TRUE(again.has_value() && again->has_migrate());
  EXPECT_EQ(again->migrate().from_lease_id(), request.from_lease_id());
  EXPECT_EQ(again->migrate().to().lease().lease_id(),
            request.to().lease().lease_id());
  EXPECT_EQ(Last().state(), v1::MigrationInfo::UNDER_WAY);
  // It is asked once.
  Tick(*cluster_);
  EXPECT_EQ(Next(session_), std::nullopt);
  Note(OutcomeOf(again->migrate()));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
  EXPECT_EQ(Last().state(), v1::MigrationInfo::DONE);
}

TEST_F(ClusterMigrationTest, BothWorkersKnowEachOther) {
  ASSERT_TRUE(Migrate().ok());
  EXPECT_EQ(Desired(there_)->peers(0).worker_id(), "w0");
  EXPECT_EQ(Desired(here_)->peers(0).worker_id(), "w1");
}

TEST_F(ClusterMigrationTest, AFailureLeavesItWhereItIs) {
  const v1::MigrationRequest request = AskedToMigrate();
  Note(FailureOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w0"));
  EXPECT_EQ(Last().state(), v1::MigrationInfo::FAILED);
  EXPECT_EQ(Last().failure_reason(), "SESSION_MEMORY");
  EXPECT_FALSE(Next(session_).has_value());
  // The other worker drops what it has received.
  EXPECT_THAT(Desired(there_)->drop_session_ids(), ElementsAre(session_.owner));
  EXPECT_THAT(Metrics(), testing::HasSubstr(R"(result="failed"} 1)"));
}

TEST_F(ClusterMigrationTest, TheLeaseThatIsLeftBesideAnotherEnds) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
  const v1::Lease other = Grant(session_, 1, here_, &w0_);
  ASSERT_EQ(other.worker_id(), "w0");
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", false, false).ok());
  v1::MigrateSessionRequest request;
  request.set_session_id(session_.owner);
  request.set_virtual_device(0);
  ASSERT_TRUE(operations::MigrateSession(*cluster_, request).ok());
  Execute(there_, &w1_);
  Note(OutcomeOf(TakeRequest()));
  // A report that was already under way.
  EXPECT_EQ(workers::Report(*cluster_, here_, w0_), absl::OkStatus());
  Execute(here_, &w0_);
  ASSERT_EQ(w0_.sessions_size(), 1);
  EXPECT_EQ(LeaseId(w0_), other.lease_id());
  // The old lease does not return when the one in use is lost.
  workers::Leave(*cluster_, there_);
  clock_.Advance(config_.worker_timeout / 2);
  Execute(here_, &w0_);
  clock_.Advance(config_.worker_timeout / 2 + absl::Seconds(1));
  Execute(here_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_THAT(Workers(), ElementsAre("w0"));
}

TEST_F(ClusterMigrationTest, AWayThatFailedBesideAnotherLeaseMayBeTriedAgain) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  ASSERT_EQ(Grant(session_, 1, there_, &w1_).worker_id(), "w1");
  v1::MigrateSessionRequest migrate;
  migrate.set_session_id(session_.owner);
  migrate.set_virtual_device(0);
  for (int i = 0; i < 2 * static_cast<int>(kMaxVirtualDevices); ++i) {
    const auto started = operations::MigrateSession(*cluster_, migrate);
    ASSERT_TRUE(started.ok()) << started.status();
    Execute(there_, &w1_);
    Note(FailureOf(TakeRequest()));
    Execute(there_, &w1_);
    EXPECT_EQ(w1_.sessions_size(), 1);
  }
}

TEST_F(ClusterMigrationTest, LittleOfWhatAClientSaysIsKept) {
  v1::MigrationOutcome outcome;
  outcome.set_to_lease_id(std::string(64, 'x'));
  v1::ErrorDetail* const failure = outcome.mutable_failure();
  failure->set_code(8);
  failure->set_reason(std::string(1 << 16, 'R'));
  // Characters of two bytes must not be cut in two.
  std::string text = "-";
  while (text.size() < 1 << 16) text += "Ã¼";
  failure->set_message(text);
  failure->set_operator_name(text);
  failure->set_operands(text);
  Note(outcome);
  EXPECT_EQ(Last().failure_reason(), std::string(64, 'R'));
  EXPECT_EQ(Last().failure(), text.substr(0, 499));
  EXPECT_LT(views::GetSession(*cluster_, session_.owner)->ByteSizeLong(),
            2000u);
  outcome.set_to_lease_id(std::string(65, 'x'));
  EXPECT_EQ(ErrorReason(migration::NoteOutcome(*cluster_, session_, outcome)),
            "PROTOCOL_VIOLATION");
  outcome.set_to_lease_id("x");
  outcome.set_from_lease_id(std::string(65, 'x'));
  EXPECT_EQ(ErrorReason(migration::NoteOutcome(*cluster_, session_, outcome)),
            "PROTOCOL_VIOLATION");
}

TEST_F(ClusterMigrationTest, ImpossibleMigrationIsRefused) {
  EXPECT_EQ(ErrorReason(Migrate("w0").status()), "ALREADY_THERE");
  EXPECT_EQ(ErrorReason(Migrate("w9").status()), "WORKER_UNKNOWN");
  v1::MigrateSessionRequest request;
  request.set_session_id(session_.owner);
  request.set_virtual_device(5);
  EXPECT_EQ(
      ErrorReason(operations::MigrateSession(*cluster_, request).status()),
      "NO_LEASE");
  request.set_session_id("0123");
  EXPECT_EQ(
      ErrorReason(operations::MigrateSession(*cluster_, request).status()),
      "SESSION_UNKNOWN");
  ASSERT_TRUE(Migrate().ok());
  EXPECT_EQ(ErrorReason(Migrate().status()), "ALREADY_MIGRATING");
}

TEST_F(ClusterMigrationTest, ACordonedWorkerIsNoPlaceToGo) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
  EXPECT_EQ(ErrorReason(Migrate().status()), "NO_SUITABLE_WORKER");
  EXPECT_THAT(Workers(), ElementsAre("w0"));
}

TEST_F(ClusterMigrationTest, AWorkerThatIsLostOnTheWayEndsIt) {
  const v1::MigrationRequest request = AskedToMigrate();
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  Execute(here_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_THAT(Workers(), ElementsAre("w0"));
  EXPECT_EQ(Last().failure_reason(), "WORKER_LOST");
  // The client may have migrated, so that it is notified.
  EXPECT_EQ(Next(session_)->ended().lease_id(),
            request.to().lease().lease_id());
  Note(FailureOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w0"));
}

TEST_F(ClusterMigrationTest, MigrationToALostWorkerEndsTheLease) {
  const v1::MigrationRequest request = AskedToMigrate();
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  Execute(here_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Next(session_)->has_ended());
  Note(OutcomeOf(request));
  EXPECT_TRUE(Workers().empty());
  EXPECT_EQ(Next(session_)->ended().lease_id(),
            request.to().lease().lease_id());
}

TEST_F(ClusterMigrationTest, AWorkerThatIsLostWhenAllIsElsewhereIsNotMissed) {
  const v1::MigrationRequest request = AskedToMigrate();
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  Execute(there_, &w1_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session_)->ended().lease_id(), lease_.lease_id());
  Note(OutcomeOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
}

TEST_F(ClusterMigrationTest, AWorkerThatDoesNotAnswerEndsIt) {
  ASSERT_TRUE(Migrate().ok());
  clock_.Advance(config_.lease_request_timeout);
  Execute(here_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_THAT(Workers(), ElementsAre("w0"));
  EXPECT_EQ(Last().state(), v1::MigrationInfo::FAILED);
  EXPECT_FALSE(Next(session_).has_value());
}

TEST_F(ClusterMigrationTest, AClientThatIsAwayIsNotAsked) {
  sessions::Detach(*cluster_, session_);
  EXPECT_EQ(ErrorReason(Migrate().status()), "SESSION_DETACHED");
  session_ = Open("red", session_.owner);
  ASSERT_TRUE(Migrate().ok());
  sessions::Detach(*cluster_, session_);
  Execute(there_, &w1_);
  EXPECT_THAT(Workers(), ElementsAre("w0"));
  EXPECT_EQ(Last().failure_reason(), "SESSION_DETACHED");
}

TEST_F(ClusterMigrationTest, OneThatRestartsHearsFromTheClientHowItEnded) {
  for (const bool went : {false, true}) {
    SCOPED_TRACE(went);
    const v1::MigrationRequest request = AskedToMigrate();
    Execute(here_, &w0_);
    const auto saved = persistence::Save(*cluster_);
    Restart();
    ASSERT_TRUE(persistence::Restore(*cluster_, saved).ok());
    here_ = Join(w0_);
    there_ = Join(w1_);
    EXPECT_EQ(Workers().size(), 2u);
    EXPECT_EQ(Desired(here_)->drop_session_ids_size(), 0);
    EXPECT_EQ(Desired(there_)->drop_session_ids_size(), 0);
    session_ = Open("red", session_.owner);
    Note(went ? OutcomeOf(request) : FailureOf(request));
    EXPECT_THAT(Workers(), ElementsAre(went ? "w1" : "w0"));
    Execute(here_, &w0_);
    Execute(there_, &w1_);
    EXPECT_THAT(Workers(), ElementsAre(went ? "w1" : "w0"));
  }
}

TEST_F(ClusterMigrationTest, OneThatRestartsMayHearFromTheClientFirst) {
  for (const bool went : {false, true}) {
    for (const bool here_first : {false, true}) {
      SCOPED_TRACE(absl::StrCat(went, here_first));
      const v1::MigrationRequest request = AskedToMigrate();
      Execute(here_, &w0_);
      Restart();
      session_ = Open("red", session_.owner);
      if (here_first) here_ = Join(w0_);
      Note(went ? OutcomeOf(request) : FailureOf(request));
      there_ = Join(w1_);
      if (!here_first) here_ = Join(w0_);
      EXPECT_THAT(Workers(), ElementsAre(went ? "w1" : "w0"));
      EXPECT_FALSE(Next(session_).has_value());
      EXPECT_EQ(Last().state(),
                went ? v1::MigrationInfo::DONE : v1::MigrationInfo::FAILED);
      const auto of_here = Desired(here_), of_there = Desired(there_);
      const auto& left = went ? of_here : of_there;
      const auto& stays = went ? of_there : of_here;
      EXPECT_THAT(left->drop_session_ids(), ElementsAre(session_.owner));
      EXPECT_EQ(stays->drop_session_ids_size(), 0);
      EXPECT_EQ(UncheckedClaims(stays->leases(0)).migrates_from(), "");
      // Starts again for the next case.
      w0_ = TestWorker("w0");
      w1_ = TestWorker("w1");
      Restart();
      Begin();
    }
  }
}

TEST_F(ClusterMigrationTest, ADrainedWorkerIsLeftByAll) {
  EXPECT_EQ(
      ErrorReason(operations::Cordon(*cluster_, "w0", false, true).status()),
      "DRAIN_NEEDS_CORDON");
  const auto info = operations::Cordon(*cluster_, "w0", true, true);
  EXPECT_TRUE(info->cordoned());
  EXPECT_TRUE(info->draining());
  Execute(there_, &w1_);
  const v1::MigrationRequest first = TakeRequest();
  EXPECT_EQ(Last().reason(), "drain");
  // The client refuses, and is asked again later.
  Note(FailureOf(first));
  Execute(there_, &w1_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Workers().size(), 1u);
  clock_.Advance(absl::Seconds(2));
  Execute(here_, &w0_);
  Execute(there_, &w1_);
  coordinator::Tick(*cluster_);
  Execute(there_, &w1_);
  Note(OutcomeOf(TakeRequest()));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
  const auto saved = persistence::Save(*cluster_);
  EXPECT_FALSE(operations::Cordon(*cluster_, "w0", false, false)->draining());
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, saved).ok());
  Join(TestWorker("w0"));
  EXPECT_TRUE(views::GetWorker(*cluster_, "w0")->draining());
}

TEST_F(ClusterMigrationTest, AWorkerThatIsGoneIsUncordonedByItsName) {
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", true, true).ok());
  workers::Leave(*cluster_, there_);
  clock_.Advance(absl::Hours(2));
  coordinator::Tick(*cluster_);
  coordinator::Tick(*cluster_);
  ASSERT_EQ(ErrorReason(views::GetWorker(*cluster_, "w1").status()),
            "WORKER_UNKNOWN");
  const auto saved = persistence::Save(*cluster_);
  // The worker can be neither cordoned nor drained now.
  EXPECT_EQ(
      ErrorReason(operations::Cordon(*cluster_, "w1", true, false).status()),
      "WORKER_UNKNOWN");
  EXPECT_EQ(
      ErrorReason(operations::Cordon(*cluster_, "w1", true, true).status()),
      "WORKER_UNKNOWN");
  const auto info = operations::Cordon(*cluster_, "w1", false, false);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->worker_id(), "w1");
  EXPECT_EQ(
      ErrorReason(operations::Cordon(*cluster_, "w1", false, false).status()),
      "WORKER_UNKNOWN");
  EXPECT_TRUE(saved.contains("worker/w1"));
  EXPECT_FALSE(persistence::Save(*cluster_).contains("worker/w1"));
  Join(TestWorker("w1"));
  EXPECT_FALSE(views::GetWorker(*cluster_, "w1")->cordoned());
  EXPECT_FALSE(views::GetWorker(*cluster_, "w1")->draining());
}

TEST_F(ClusterMigrationTest, OnlyTheLeaseThatStaysCountsForTheQuota) {
  std::vector<Tenant> tenants = {TestTenant("red")};
  // The quota of one lease.
  const auto memory = static_cast<double>(tenants[0].limits.memory_bytes());
  tenants[0].quotas[0].nominal = memory;
  tenants::Set(*cluster_, tenants);
  const v1::MigrationRequest request = AskedToMigrate();
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->quotas(0).used(), memory);
  Note(OutcomeOf(request));
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->quotas(0).used(), memory);
}

// More virtual devices than are shown, all at w0.
class ManyMigrationsTest : public ClusterMigrationTest {
 protected:
  static constexpr uint32_t kDevices = 12;

  ManyMigrationsTest() {
    EXPECT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
    for (uint32_t device = 1; device < kDevices; ++device) {
      Grant(session_, device, here_, &w0_);
    }
    EXPECT_TRUE(operations::Cordon(*cluster_, "w1", false, false).ok());
    EXPECT_EQ(Migrate()->migrations_size(), static_cast<int>(kDevices));
    Execute(there_, &w1_);
    Execute(here_, &w0_);
    for (uint32_t i = 0; i < kDevices; ++i) requests_.push_back(TakeRequest());
  }
  void NoteAll() {
    for (const v1::MigrationRequest& request : requests_) {
      Note(OutcomeOf(request));
    }
  }

  std::vector<v1::MigrationRequest> requests_;
};

TEST_F(ManyMigrationsTest, AllThatAreUnderWayAtOnceAreCounted) {
  NoteAll();
  EXPECT_THAT(Workers(), testing::Each("w1"));
  EXPECT_THAT(
      Metrics(),
      testing::HasSubstr(
          R"(djinn_migrations_total{reason="operator",result="done"} 12)"));
  EXPECT_THAT(Metrics(),
              testing::HasSubstr("djinn_migration_pause_seconds_count 12\n"));
  const auto info = views::GetSession(*cluster_, session_.owner);
  ASSERT_EQ(info->migrations_size(), 8);
  EXPECT_EQ(Last().state(), v1::MigrationInfo::DONE);
  EXPECT_EQ(Last().virtual_device(), kDevices - 1);
}

TEST_F(ManyMigrationsTest, OneThatRestartsRemembersAllThatTheClientSaysFirst) {
  Restart();
  session_ = Open("red", session_.owner);
  here_ = Join(w0_);
  NoteAll();
  there_ = Join(w1_);
  EXPECT_EQ(Workers().size(), kDevices);
  EXPECT_THAT(Workers(), testing::Each("w1"));
  const std::optional<v1::DesiredState> desired = Desired(there_);
  ASSERT_TRUE(desired.has_value());
  for (const v1::SignedLease& lease : desired->leases()) {
    EXPECT_EQ(UncheckedClaims(lease).migrates_from(), "");
  }
}

TEST_F(ManyMigrationsTest, EndedMigrationsAreKeptUpToALimit) {
  NoteAll();
  // The device migrates back and forth.
  StreamId* from = &there_;
  StreamId* to = &here_;
  v1::WorkerState* from_state = &w1_;
  v1::WorkerState* to_state = &w0_;
  for (int i = 0; i < 10; ++i) {
    Execute(*from, from_state);
    Execute(*to, to_state);
    Execute(*to, to_state);
    ASSERT_TRUE(Migrate().ok());
    Execute(*to, to_state);
    requests_.clear();
    for (uint32_t d = 0; d < kDevices; ++d) requests_.push_back(TakeRequest());
    NoteAll();
    std::swap(from, to);
    std::swap(from_state, to_state);
  }
  EXPECT_THAT(
      Metrics(),
      testing::HasSubstr(
          R"(djinn_migrations_total{reason="operator",result="done"} 132)"));
  EXPECT_EQ(views::GetSession(*cluster_, session_.owner)->migrations_size(), 8);
}

TEST_F(ClusterMigrationTest, OutcomeThatLeavesTheTargetIsIgnored) {
  const v1::MigrationRequest request = AskedToMigrate();
  v1::MigrationOutcome outcome = OutcomeOf(request);
  outcome.set_from_lease_id(request.to().lease().lease_id());
  outcome.set_to_lease_id("another");
  Note(outcome);
  EXPECT_EQ(Workers().size(), 2u);
  Note(OutcomeOf(request));
  EXPECT_THAT(Workers(), ElementsAre("w1"));
}

TEST_F(ClusterMigrationTest, AnotherSessionsLeasesAreNotItsOwn) {
  const v1::MigrationRequest request = AskedToMigrate();
  const StreamId other = Open("red");
  EXPECT_EQ(migration::NoteOutcome(*cluster_, other, OutcomeOf(request)),
            absl::OkStatus());
  EXPECT_EQ(Workers().size(), 2u);
}

}  // namespace
}  // namespace djinn::coordinator
