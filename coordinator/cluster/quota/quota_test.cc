// Tests the effect of quotas on leases: breaches, borrowing, reclaiming.
#include "common/base/proto_duration.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/quota_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(ClusterQuotaTest, ABreachIsRefusedAndSaysByHowMuch) {
  SetRedMemory(3 * kGiB / 2);
  Leased("red");
  const v1::LeaseRefused refused = Ask(Open("red"))->refused();
  EXPECT_EQ(refused.code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(refused.reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.message(),
            "tenant red may have 1610612736 memory_bytes, has 1073741824 and "
            "asks for 1073741824 more");
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  // Blue has no quota.
  Leased("blue");
}

TEST_F(ClusterQuotaTest, ADryRunNamesItBeforeTheWorkers) {
  v1::TryPlacementRequest request;
  request.set_tenant("red");
  EXPECT_FALSE(explain::TryPlacement(*cluster_, request)->has_gate());
  SetRedMemory(kGiB / 2);
  const v1::TryPlacementResponse response =
      *explain::TryPlacement(*cluster_, request);
  EXPECT_EQ(response.gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(response.decision().worker_id(), "w0");
}

TEST_F(ClusterQuotaTest, MessagesCountToo) {
  config_.tenants[0]
      .quotas[static_cast<size_t>(scheduler::Resource::kOutstandingMessages)]
      .nominal = 300;
  tenants::Set(*cluster_, config_.tenants);
  Leased("red");
  EXPECT_THAT(Ask(Open("red"))->refused().message(),
              testing::HasSubstr("300 outstanding_messages, has 256"));
}

TEST_F(ClusterQuotaTest, PartsOfTheMemoryAreQuotasOfTheirOwn) {
  constexpr auto kStorage =
      static_cast<size_t>(scheduler::Resource::kStorageBytes);
  for (Tenant& tenant : config_.tenants) {
    tenant.cohort = "lab";
    tenant.quotas[kStorage].nominal = kGiB / 2;
    tenant.limits.set_storage_bytes(kGiB / 2);
  }
  // Without a limit of their own, a session's storages may take all its memory.
  config_.tenants[0].limits.clear_storage_bytes();
  config_.tenants[0].quotas[kStorage].borrowing_limit = kGiB / 4;
  tenants::Set(*cluster_, config_.tenants);
  const v1::LeaseRefused refused = Ask(Open("red"))->refused();
  EXPECT_EQ(refused.reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.message(),
            "tenant red may have 805306368 storage_bytes, has 0 and asks for "
            "1073741824 more");
  // With a limit it fits, and blue reclaims what red borrows.
  config_.tenants[0].limits.set_storage_bytes(3 * kGiB / 4);
  tenants::Set(*cluster_, config_.tenants);
  const StreamId borrower = Leased("red");
  EXPECT_EQ(MemoryOf("red").resource(), "storage_bytes");
  EXPECT_EQ(MemoryOf("red").borrowed(), kGiB / 4);
  Leased("blue");
  EXPECT_EQ(Next(borrower)->ended().reason(), "QUOTA_RECLAIMED");
}

TEST_F(ClusterQuotaTest, EndedSessionFreesQuota) {
  SetRedMemory(kGiB);
  const StreamId first = Leased("red");
  EXPECT_TRUE(Ask(Open("red"))->has_refused());
  sessions::Close(*cluster_, first);
  EXPECT_EQ(MemoryOf("red").used(), 0);
  Leased("red");
}

TEST_F(ClusterQuotaTest, RefusalNamesTheEndOfADetachedSession) {
  SetRedMemory(kGiB);
  const StreamId first = Leased("red");
  EXPECT_FALSE(Ask(Open("red"))->refused().has_retry_after());
  sessions::Detach(*cluster_, first);
  // The client still has its stream to the worker.
  w0_.mutable_sessions(0)->set_attached(true);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  clock_.Advance(absl::Seconds(10));
  const v1::LeaseRefused refused = Ask(Open("red"))->refused();
  EXPECT_EQ(FromProtoDuration(refused.retry_after()),
            config_.session_timeout - absl::Seconds(10));
  // The tenant asks for more than it may ever have.
  SetRedMemory(kGiB - 1);
  EXPECT_FALSE(Ask(Open("red"))->refused().has_retry_after());
}

TEST_F(ClusterQuotaTest, BorrowedQuotaIsReclaimed) {
  Lend(1, 1);
  const StreamId first = Leased("red");
  clock_.Advance(absl::Seconds(1));
  const StreamId second = Leased("red");
  EXPECT_EQ(MemoryOf("red").borrowed(), kGiB);
  EXPECT_EQ(MemoryOf("blue").lent(), kGiB);
  EXPECT_GT(views::GetTenant(*cluster_, "red")->weighted_share(), 0);
  EXPECT_EQ(views::GetTenant(*cluster_, "blue")->weighted_share(), 0);

  Leased("blue");
  // If two sessions lose nothing, the younger one yields.
  EXPECT_EQ(Next(first), std::nullopt);
  EXPECT_EQ(Next(second)->ended().reason(), "QUOTA_RECLAIMED");
  EXPECT_THAT(
      Metrics(),
      HasSubstr("djinn_preemptions_total{preemptor_tenant=\"blue\","
                "victim_tenant=\"red\",reason=\"reclaim_nominal\"} 1\n"));
  EXPECT_EQ(MemoryOf("red").borrowed(), 0);
  EXPECT_EQ(MemoryOf("blue").used(), kGiB);
  EXPECT_THAT(w0_.sessions(), SizeIs(2));
  // Nothing is left to borrow or to reclaim.
  EXPECT_EQ(Ask(second), std::nullopt);
}

TEST_F(ClusterQuotaTest, ACohortsQuotaChangesWhileItRuns) {
  config_.tenants.push_back(TestTenant("green"));
  Lend(1, 1);
  config_.tenants[2].cohort.clear();
  std::vector<Cohort> cohorts(1);
  cohorts[0].name = "lab";
  cohorts[0].quotas[0].nominal = kGiB;
  v1::ReloadConfigResponse changes =
      tenants::Set(*cluster_, config_.tenants, cohorts);
  EXPECT_THAT(changes.changed_tenants(), ElementsAre("blue", "green", "red"));
  for (int i = 0; i < 2; ++i) Leased("red");
  EXPECT_EQ(MemoryOf("red").borrowed(), kGiB);
  // Blue has its own quota beside the cohort's.
  const StreamId third = Leased("blue");
  EXPECT_EQ(MemoryOf("blue").lent(), 0);
  // Setting the same again changes nothing.
  EXPECT_THAT(
      tenants::Set(*cluster_, config_.tenants, cohorts).changed_tenants(),
      testing::IsEmpty());
  cohorts[0].weight = 2;
  EXPECT_THAT(
      tenants::Set(*cluster_, config_.tenants, cohorts).changed_tenants(),
      ElementsAre("blue", "red"));
  // Without the cohort's quota red has too much, and keeps it until another
  // tenant asks.
  EXPECT_THAT(tenants::Set(*cluster_, config_.tenants).changed_tenants(),
              ElementsAre("blue", "red"));
  EXPECT_EQ(MemoryOf("red").used(), 2 * kGiB);
  sessions::Close(*cluster_, third);
  Leased("blue");
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
}

TEST_F(ClusterQuotaTest, WhereASessionGoesNothingIsReclaimed) {
  Lend(1, 1);
  const StreamId first = Leased("red");
  clock_.Advance(absl::Seconds(1));
  const StreamId second = Leased("red");
  clock_.Advance(absl::Seconds(1));
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId there = MoveTo(&w1, first);
  EXPECT_TRUE(Next(first)->has_migrate());

  LeaseBeside("blue", there, &w1);
  EXPECT_EQ(Next(first), std::nullopt);
  EXPECT_EQ(Next(second)->ended().reason(), "QUOTA_RECLAIMED");
}

TEST_F(ClusterQuotaTest, TheWayOfWhoYieldsEndsWithIt) {
  Lend(1, 1);
  const StreamId first = Leased("red");
  clock_.Advance(absl::Seconds(1));
  const StreamId second = Leased("red");
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId there = MoveTo(&w1, second);
  const v1::MigrationRequest request = Next(second)->migrate();

  LeaseBeside("blue", there, &w1);
  const v1::LeaseEnded ended = Next(second)->ended();
  EXPECT_EQ(ended.lease_id(), request.to().lease().lease_id());
  EXPECT_EQ(ended.reason(), "QUOTA_RECLAIMED");
  EXPECT_EQ(Next(second)->ended().lease_id(), request.from_lease_id());
  // The client migrated before it was notified.
  NoteMoved(second, request);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  EXPECT_EQ(MemoryOf("blue").used(), kGiB);
}

TEST_F(ClusterQuotaTest, OneOfTwoLeasesOfADeviceCountsAtEveryMoment) {
  Lend(1, 1);
  const StreamId session = Leased("red");
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId there = MoveTo(&w1, session);
  const v1::MigrationRequest request = Next(session)->migrate();
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  // The source worker is lost first.
  workers::Leave(*cluster_, worker_);
  Join(TestWorker("w0", 2));
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  NoteMoved(session, request);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  sessions::Close(*cluster_, session);
  EXPECT_EQ(MemoryOf("red").used(), 0);
}

// Another process has the state of the first one, and its workers return one by
// one.
class RestoredQuotaTest : public ClusterQuotaTest {
 protected:
  void RestartFromSaved() {
    const std::map<std::string, std::string> state =
        persistence::Save(*cluster_);
    Restart();
    ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
  }
  void RestartWithState() {
    RestartFromSaved();
    w0_.set_applied_revision(0);
    there_ = Join(w1_);
  }
  std::optional<v1::SessionResponse> AskThere(const StreamId& session) {
    return AskAt(there_, &w1_, session);
  }

  v1::WorkerState w1_ = TestWorker("w1");
  StreamId there_;
};

TEST_F(RestoredQuotaTest, RestoredLeaseCountsBeforeItsWorkerReports) {
  SetRedMemory(kGiB);
  const StreamId session = Leased("red");
  RestartWithState();
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  EXPECT_EQ(AskThere(Open("red"))->refused().reason(), "QUOTA_EXCEEDED");
  // The restored lease does not count twice when its worker reports it.
  worker_ = Join(w0_);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  sessions::Close(*cluster_, Open("red", session.owner));
  EXPECT_EQ(MemoryOf("red").used(), 0);
}

TEST_F(RestoredQuotaTest, ReleasedUseDoesNotSurviveARestart) {
  SetRedMemory(2 * kGiB);
  const StreamId session = Leased("red");
  // The worker returns without the session.
  w0_.clear_sessions();
  RestartWithState();
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  Join(w0_);
  EXPECT_EQ(MemoryOf("red").used(), 0);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  // The session ends before its worker returns.
  EXPECT_TRUE(AskThere(Open("red"))->has_granted());
  const StreamId last = Open("red");
  EXPECT_TRUE(AskThere(last)->has_granted());
  w1_.clear_sessions();
  RestartFromSaved();
  EXPECT_EQ(MemoryOf("red").used(), 2 * kGiB);
  sessions::Close(*cluster_, Open("red", last.owner));
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  // No worker returns.
  clock_.Advance(config_.lease_valid_for + config_.lease_grace_period);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(MemoryOf("red").used(), 0);
}

TEST_F(RestoredQuotaTest, RequestWaitsForARestoredBorrower) {
  Lend(1, 1);
  Leased("red");
  Leased("red");
  RestartWithState();
  const StreamId blue = Open("blue");
  EXPECT_EQ(AskThere(blue), std::nullopt);
  EXPECT_EQ(MemoryOf("blue").used(), 0);
  worker_ = Join(w0_);
  coordinator::Tick(*cluster_);
  Execute(worker_, &w0_);
  Execute(there_, &w1_);
  EXPECT_TRUE(Next(blue)->has_granted());
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
}

TEST_F(RestoredQuotaTest, RequestThatWaitsForAReclaimIsNoDemand) {
  Lend(1, 1);
  Leased("red");
  Leased("red");
  RestartWithState();
  clock_.Advance(config_.worker_timeout);
  EXPECT_EQ(workers::Report(*cluster_, there_, w1_), absl::OkStatus());
  const StreamId blue = Open("blue");
  EXPECT_EQ(AskThere(blue), std::nullopt);
  const v1::DeviceExplanation waits =
      explain::ExplainSession(*cluster_, blue.owner)->devices(0);
  EXPECT_EQ(waits.gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_THAT(waits.gate().unblocked_by(), HasSubstr("quota"));
  EXPECT_FALSE(waits.has_decision());
  const absl::StatusOr<ClusterDemand> demand = demand::Demand(*cluster_);
  ASSERT_TRUE(demand.ok()) << demand.status();
  EXPECT_THAT(demand->devices, testing::Each(0));
}

TEST_F(ClusterQuotaTest, BorrowerWaitsForLentQuota) {
  Lend(1, 1);
  const StreamId first = Leased("red");
  const StreamId lender = Leased("blue");
  // A request that waits in vain learns the reason.
  const StreamId late = Open("red");
  EXPECT_EQ(Ask(late), std::nullopt);
  clock_.Advance(config_.lease_request_timeout);
  Execute(worker_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(late)->refused().message(),
            "tenant red may have 1073741824 memory_bytes for now, has "
            "1073741824 and asks for 1073741824 more");

  const StreamId waiting = Open("red");
  EXPECT_EQ(Ask(waiting), std::nullopt);
  sessions::Close(*cluster_, lender);
  Execute(worker_, &w0_);
  coordinator::Tick(*cluster_);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Next(waiting)->has_granted());
}

TEST_F(ClusterQuotaTest, QuotasAreReloaded) {
  Lend(1, 1);
  Leased("red");
  Leased("red");
  config_.tenants[0].cohort = "";
  EXPECT_THAT(tenants::Set(*cluster_, config_.tenants).changed_tenants(),
              ElementsAre("red"));
  // Existing leases continue.
  EXPECT_EQ(MemoryOf("red").used(), 2 * kGiB);
  EXPECT_TRUE(Ask(Open("red"))->has_refused());
  Leased("blue");
}

TEST_F(ClusterQuotaTest, ReportedUseCountsBeforeTheRestart) {
  Leased("red");
  Restart();
  Lend(1, 0);
  w0_.set_applied_revision(0);
  worker_ = Join(w0_);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
}

}  // namespace
}  // namespace djinn::coordinator
