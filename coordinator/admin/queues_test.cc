// Tests tenants' queues: what a stop holds, drains and survives, and what
// operators see of it.
#include "coordinator/admin/queues.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

class ClusterQueueTest : public ClusterTest {
 protected:
  void Ask(const StreamId& session, uint32_t device = 0, uint64_t bytes = 100) {
    EXPECT_EQ(requests::Request(*cluster_, session,
                                TestLeaseRequest(device, ++hash_, bytes)),
              absl::OkStatus());
  }
  StreamId OpenAndAsk(const std::string& tenant, uint64_t bytes = 100) {
    const StreamId session = Open(tenant);
    Ask(session, 0, bytes);
    return session;
  }
  bool Has(const StreamId& session) {
    const auto next = Next(session);
    return next.has_value() && next->has_granted();
  }
  v1::DeviceExplanation Explain(const StreamId& session, int device = 0) {
    return explain::ExplainSession(*cluster_, session.owner)->devices(device);
  }
  v1::QueueInfo Stop(const std::string& tenant, bool drain = false) {
    const auto info = queues::Stop(*cluster_, tenant, drain);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.value_or(v1::QueueInfo());
  }
  v1::QueueInfo Resume(const std::string& tenant) {
    const auto info = queues::Resume(*cluster_, tenant);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.value_or(v1::QueueInfo());
  }

  StreamId worker_ = Join(w0_);
  uint64_t hash_ = 0;
};

TEST_F(ClusterQueueTest, AStoppedTenantGetsNoNewLeaseAndKeepsThoseItHas) {
  const StreamId runs = Open("red");
  Grant(runs, 0, worker_, &w0_);
  EXPECT_TRUE(Stop("red").has_stop());
  Ask(runs, 1);
  const v1::DeviceExplanation waits = Explain(runs, 1);
  EXPECT_EQ(waits.gate().reason(), "QUEUE_STOPPED");
  EXPECT_EQ(waits.gate().message(),
            "an operator has stopped the queue of tenant red: it gets no new "
            "leases");
  EXPECT_EQ(waits.gate().unblocked_by(),
            "an operator: djinnctl resume queue red");
  EXPECT_EQ(waits.place_in_line(), 0u);
  EXPECT_FALSE(waits.has_decision());
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(runs, 0).state(), v1::LeaseInfo::GRANTED);
  EXPECT_EQ(Explain(runs, 1).gate().reason(), "QUEUE_STOPPED");
  // Other tenants continue.
  const StreamId other = OpenAndAsk("blue");
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(other));
  // The held request continues once the queue is resumed.
  EXPECT_FALSE(Resume("red").has_stop());
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(runs));
}

TEST_F(ClusterQueueTest, WhoseWaitEndsMeanwhileIsRefusedForIt) {
  Stop("red");
  const StreamId session = OpenAndAsk("red");
  clock_.Advance(config_.lease_request_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  const v1::LeaseRefused refused = Next(session)->refused();
  EXPECT_EQ(refused.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(refused.reason(), "QUEUE_STOPPED");
  // The time of the resumption is unknown.
  EXPECT_FALSE(refused.has_retry_after());
  EXPECT_THAT(
      Metrics(),
      HasSubstr(
          "djinn_rejections_total{tenant=\"red\",reason=\"QUEUE_STOPPED\"} 1"));
}

TEST_F(ClusterQueueTest, AFurtherMemberIsRefusedAtOnce) {
  const StreamId session = Open("red");
  Grant(session, 0, worker_, &w0_);
  Stop("red");
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_member(1);
  ASSERT_TRUE(requests::Request(*cluster_, session, request).ok());
  EXPECT_EQ(Next(session)->refused().reason(), "QUEUE_STOPPED");
}

TEST_F(ClusterQueueTest, RequestsOfAStoppedQueueReturnInTheirOrder) {
  w0_.set_free_bytes(0);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId first = OpenAndAsk("red");
  clock_.Advance(absl::Seconds(1));
  const StreamId second = OpenAndAsk("red");
  const StreamId other = OpenAndAsk("blue");
  EXPECT_EQ(Explain(other).line_length(), 3u);
  v1::QueueInfo info = Stop("red");
  // The held request blocks no others.
  EXPECT_EQ(Explain(other).line_length(), 1u);
  EXPECT_EQ(Explain(other).place_in_line(), 1u);
  EXPECT_EQ(Explain(first).gate().reason(), "QUEUE_STOPPED");
  ASSERT_THAT(info.waiting(), SizeIs(1));
  EXPECT_EQ(info.waiting(0).reason(), "QUEUE_STOPPED");
  EXPECT_EQ(info.waiting(0).count(), 2u);
  EXPECT_EQ(info.first_place(), 0u);
  info = Resume("red");
  EXPECT_EQ(info.waiting(0).reason(), "NO_CAPACITY");
  EXPECT_EQ(info.line_length(), 3u);
  EXPECT_LT(Explain(first).place_in_line(), Explain(second).place_in_line());
}

TEST_F(ClusterQueueTest, ADrainEndsLeasesAndTheirSessionsWait) {
  const StreamId session = Open("red");
  Grant(session, 0, worker_, &w0_);
  const StreamId other = Open("blue");
  Grant(other, 0, worker_, &w0_);
  EXPECT_TRUE(Stop("red", /*drain=*/true).stop().drain());
  EXPECT_EQ(Next(session)->ended().reason(), "QUEUE_STOPPED");
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->lease_count(), 0u);
  EXPECT_EQ(views::GetTenant(*cluster_, "blue")->lease_count(), 1u);
  // The worker drops the session.
  EXPECT_THAT(Desired(worker_)->drop_session_ids(), ElementsAre(session.owner));
  const v1::DeviceExplanation lost = Explain(session);
  EXPECT_EQ(lost.lost_lease().reason(), "QUEUE_STOPPED");
  EXPECT_EQ(lost.gate().reason(), "QUEUE_STOPPED");
  EXPECT_EQ(lost.gate().unblocked_by(),
            "an operator: djinnctl resume queue red");
  Ask(session);
  EXPECT_EQ(Explain(session).gate().reason(), "QUEUE_STOPPED");
  EXPECT_FALSE(Next(other).has_value());
}

TEST_F(ClusterQueueTest, ADrainWithdrawsWhatIsOffered) {
  const StreamId session = OpenAndAsk("red");
  EXPECT_EQ(Explain(session).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  // Without a drain the request continues, because its placement was decided.
  Stop("red");
  EXPECT_EQ(Explain(session).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  Stop("red", /*drain=*/true);
  EXPECT_EQ(Explain(session).gate().reason(), "QUEUE_STOPPED");
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  Execute(worker_, &w0_);
  EXPECT_FALSE(Next(session).has_value());
}

TEST_F(ClusterQueueTest, ADrainTakesWaysToOtherWorkersAlong) {
  const StreamId session = Open("red");
  Grant(session, 0, worker_, &w0_);
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId other = Join(w1);
  v1::MigrateSessionRequest request;
  request.set_session_id(session.owner);
  request.set_to_worker_id("w1");
  ASSERT_TRUE(operations::MigrateSession(*cluster_, request).ok());
  ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(2));
  Stop("red", /*drain=*/true);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_EQ(views::GetSession(*cluster_, session.owner)
                ->migrations(0)
                .failure_reason(),
            "QUEUE_STOPPED");
  EXPECT_THAT(Desired(worker_)->drop_session_ids(), ElementsAre(session.owner));
  EXPECT_THAT(Desired(other)->drop_session_ids(), ElementsAre(session.owner));
}

TEST_F(ClusterQueueTest, AStopOutlivesTheProcessAndDrainsWhatIsAdopted) {
  const StreamId session = Open("red");
  Grant(session, 0, worker_, &w0_);
  Stop("red");
  const auto held = persistence::Save(*cluster_);
  EXPECT_THAT(held, Contains(Key("queue/red")));
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, held).ok());
  EXPECT_TRUE(views::GetTenant(*cluster_, "red")->has_queue_stop());
  EXPECT_FALSE(views::GetTenant(*cluster_, "red")->queue_stop().drain());
  worker_ = Join(w0_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->lease_count(), 1u);
  Stop("red", /*drain=*/true);
  const auto drained = persistence::Save(*cluster_);
  // The worker does not know about the drain yet.
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, drained).ok());
  worker_ = Join(w0_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->lease_count(), 0u);
  Resume("red");
  EXPECT_THAT(persistence::Save(*cluster_), Not(Contains(Key("queue/red"))));
}

TEST_F(ClusterQueueTest, AStopThatCannotBeReadIsNotStartedFrom) {
  EXPECT_EQ(
      ErrorReason(persistence::Restore(*cluster_, {{"queue/red", "\xff"}})),
      "STORE_CORRUPT");
}

TEST_F(ClusterQueueTest, ATenantThatIsGoneStaysStoppedUntilItIsResumed) {
  EXPECT_EQ(ErrorReason(queues::Stop(*cluster_, "green", false).status()),
            "TENANT_UNKNOWN");
  EXPECT_EQ(ErrorReason(queues::Resume(*cluster_, "green").status()),
            "TENANT_UNKNOWN");
  EXPECT_EQ(ErrorReason(queues::Get(*cluster_, "green").status()),
            "TENANT_UNKNOWN");
  Stop("red");
  tenants::Set(*cluster_, {TestTenant("blue")});
  EXPECT_TRUE(queues::Get(*cluster_, "red")->has_stop());
  EXPECT_FALSE(queues::Get(*cluster_, "red")->has_standing());
  tenants::Set(*cluster_, {TestTenant("blue"), TestTenant("red")});
  EXPECT_EQ(Explain(OpenAndAsk("red")).gate().reason(), "QUEUE_STOPPED");
  tenants::Set(*cluster_, {TestTenant("blue")});
  EXPECT_EQ(Resume("red").tenant(), "red");
  EXPECT_EQ(ErrorReason(queues::Get(*cluster_, "red").status()),
            "TENANT_UNKNOWN");
}

TEST_F(ClusterQueueTest, ResumingWhatIsNotStoppedChangesNothing) {
  EXPECT_FALSE(Resume("red").has_stop());
}

TEST_F(ClusterQueueTest, OperatorsSeeWhatWaitsAndForHowLong) {
  config_.tenants[0].weight = 3;
  config_.tenants[0].cohort = "lab";
  tenants::Set(*cluster_, config_.tenants);
  const StreamId runs = Open("red");
  Grant(runs, 0, worker_, &w0_);
  w0_.set_free_bytes(0);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  Ask(runs, 1);
  clock_.Advance(absl::Seconds(2));
  const StreamId other = OpenAndAsk("blue");
  const Page<v1::QueueInfo> page = queues::List(*cluster_, {});
  ASSERT_THAT(page.items, SizeIs(2));
  EXPECT_EQ(page.items[0].tenant(), "blue");
  const v1::QueueInfo& red = page.items[1];
  EXPECT_EQ(red.tenant(), "red");
  EXPECT_FALSE(red.has_stop());
  EXPECT_EQ(FromProtoDuration(red.oldest_wait()), absl::Seconds(2));
  ASSERT_THAT(red.waiting(), SizeIs(1));
  EXPECT_EQ(red.waiting(0).reason(), "NO_CAPACITY");
  EXPECT_EQ(red.waiting(0).count(), 1u);
  EXPECT_EQ(red.line_length(), 2u);
  EXPECT_EQ(red.first_place() + page.items[0].first_place(), 3u);
  EXPECT_EQ(red.cohort(), "lab");
  EXPECT_EQ(red.standing().weight(), 3);
  EXPECT_EQ(red.standing().lease_count(), 1u);
  EXPECT_EQ(red.standing().waiting_count(), 1u);
  EXPECT_EQ(red.standing().fair_share(), 1);
  EXPECT_EQ(queues::Get(*cluster_, "red")->SerializeAsString(),
            red.SerializeAsString());
  // A page ends at its limit.
  const Page<v1::QueueInfo> first = queues::List(*cluster_, {.max_items = 1});
  EXPECT_EQ(first.last_key, "blue");
  EXPECT_THAT(first.items, SizeIs(1));
}

TEST_F(ClusterQueueTest, ATenantsExplanationAndAPlacementNameTheStop) {
  Stop("red", /*drain=*/true);
  OpenAndAsk("red");
  const v1::TenantExplanation explanation =
      *explain::ExplainTenant(*cluster_, "red");
  EXPECT_TRUE(explanation.queue_stop().drain());
  ASSERT_THAT(explanation.held(), SizeIs(1));
  EXPECT_EQ(explanation.held(0).gate().reason(), "QUEUE_STOPPED");
  EXPECT_FALSE(explain::ExplainTenant(*cluster_, "blue")->has_queue_stop());
  v1::TryPlacementRequest asked;
  asked.set_tenant("red");
  const v1::TryPlacementResponse placement =
      *explain::TryPlacement(*cluster_, asked);
  EXPECT_EQ(placement.gate().reason(), "QUEUE_STOPPED");
  EXPECT_EQ(placement.gate().unblocked_by(),
            "an operator: djinnctl resume queue red");
  EXPECT_EQ(placement.decision().worker_id(), "w0");
}

TEST_F(ClusterQueueTest, MetricsCountByWhatIsWaitedFor) {
  Stop("red");
  OpenAndAsk("red");
  OpenAndAsk("blue");
  const std::string text = Metrics();
  for (const char* line :
       {"djinn_queue_stopped{tenant=\"red\"} 1",
        "djinn_queue_stopped{tenant=\"blue\"} 0",
        "djinn_pending_leases{tenant=\"red\",reason=\"queue_stopped\"} 1",
        "djinn_pending_leases{tenant=\"blue\","
        "reason=\"worker_acknowledgement\"} 1",
        "djinn_scheduling_attempts_total{result=\"queue_stopped\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ClusterQueueTest, ShareMetricNamesTheOutermostCohort) {
  config_.tenants[0].cohort = "lab/vision";
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_tenant_weighted_share_ratio{tenant=\"red\","
                        "cohort=\"lab\"} 0"));
}

TEST_F(ClusterQueueTest, NothingIsTakenBackForWhoIsStopped) {
  for (Tenant& tenant : config_.tenants) {
    tenant.cohort = "lab";
    tenant.quotas[0].nominal = int64_t{1} << 30;
  }
  tenants::Set(*cluster_, config_.tenants);
  const StreamId borrower = Open("blue");
  Grant(borrower, 0, worker_, &w0_);
  Grant(borrower, 1, worker_, &w0_);
  Stop("red");
  OpenAndAsk("red");
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::GetTenant(*cluster_, "blue")->lease_count(), 2u);
  Resume("red");
  EXPECT_EQ(views::GetTenant(*cluster_, "blue")->lease_count(), 0u)
      << "both are of one session";
}

}  // namespace
}  // namespace djinn::coordinator
