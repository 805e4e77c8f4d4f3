// Tests the order in which waiting requests get workers.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/explain.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;

// The worker has room for one session's contents.
class ClusterLineTest : public ClusterTest {
 protected:
  ClusterLineTest() {
    w0_.set_free_bytes(1000);
    worker_ = Join(w0_);
    holder_ = Open("red");
    Wait(holder_);
    Execute(worker_, &w0_);
    EXPECT_TRUE(Next(holder_)->has_granted());
  }
  // Asks for a worker with room for `bytes`.
  void Wait(const StreamId& session, uint64_t bytes = 700) {
    EXPECT_EQ(requests::Request(*cluster_, session,
                                TestLeaseRequest(0, ++hash_, bytes)),
              absl::OkStatus());
  }
  StreamId OpenAndWait(const std::string& tenant, uint64_t bytes = 700) {
    const StreamId session = Open(tenant);
    Wait(session, bytes);
    return session;
  }
  // Frees what that session had; a waiting session gets it.
  void Free(const StreamId& session) {
    sessions::Close(*cluster_, session);
    Execute(worker_, &w0_);
    Execute(worker_, &w0_);
  }
  bool Has(const StreamId& session) {
    const auto next = Next(session);
    return next.has_value() && next->has_granted();
  }
  v1::DeviceExplanation Explain(const StreamId& session) {
    return explain::ExplainSession(*cluster_, session.owner)->devices(0);
  }
  void SetClass(const StreamId& session, v1::PriorityClass priority_class,
                absl::Duration deadline = absl::ZeroDuration()) {
    v1::Urgency urgency;
    urgency.set_priority_class(priority_class);
    if (deadline > absl::ZeroDuration()) {
      *urgency.mutable_run_deadline() = ToProtoDuration(deadline);
    }
    EXPECT_TRUE(sessions::SetUrgency(*cluster_, session, urgency).ok());
  }

  StreamId worker_, holder_;
  uint64_t hash_ = 0;
};

TEST_F(ClusterLineTest, TenantThatHadAWorkerWaitsBehindOthers) {
  const StreamId red = OpenAndWait("red"), blue = OpenAndWait("blue");
  EXPECT_EQ(Explain(red).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Explain(red).place_in_line(), 2u);
  EXPECT_EQ(Explain(blue).place_in_line(), 1u);
  EXPECT_EQ(Explain(blue).line_length(), 2u);
  Free(holder_);
  EXPECT_FALSE(Has(red));
  EXPECT_TRUE(Has(blue));
  EXPECT_EQ(Explain(red).place_in_line(), 1u);
  EXPECT_EQ(Explain(blue).place_in_line(), 0u);
  Free(blue);
  EXPECT_TRUE(Has(red));
}

TEST_F(ClusterLineTest, EarlierDeadlineIsFirstInItsTenant) {
  const StreamId whenever = OpenAndWait("red"), soon = OpenAndWait("red");
  EXPECT_EQ(Explain(soon).place_in_line(), 2u);
  SetClass(soon, v1::PRIORITY_CLASS_UNSPECIFIED, absl::Milliseconds(50));
  EXPECT_EQ(Explain(soon).place_in_line(), 1u);
  Free(holder_);
  EXPECT_FALSE(Has(whenever));
  EXPECT_TRUE(Has(soon));
}

TEST_F(ClusterLineTest, DeviceTimeCountsAndIsForgotten) {
  const StreamId red = OpenAndWait("red"), blue = OpenAndWait("blue");
  EXPECT_EQ(Explain(blue).place_in_line(), 1u);
  // Blue's weight does not help as long as blue has had nothing. Then blue uses
  // device time.
  v1::WorkerState other = TestWorker("w1");
  other.set_free_bytes(100);
  const StreamId w1 = Join(other);
  const StreamId working = OpenAndWait("blue", 50);
  Execute(w1, &other);
  EXPECT_TRUE(Has(working));
  *other.mutable_sessions(0)->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(absl::Seconds(60));
  ASSERT_TRUE(workers::Report(*cluster_, w1, other).ok());
  EXPECT_EQ(Explain(red).place_in_line(), 1u);
  EXPECT_EQ(Explain(blue).place_in_line(), 2u);
}

TEST_F(ClusterLineTest, AnotherHighestClassChangesPlaces) {
  const StreamId blue = OpenAndWait("blue");
  const StreamId red = OpenAndWait("red");
  SetClass(red, v1::PRIORITY_CLASS_REALTIME);
  EXPECT_EQ(Explain(red).place_in_line(), 1u);
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_BATCH;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(Explain(red).place_in_line(), 2u);
  EXPECT_EQ(Explain(blue).place_in_line(), 1u);
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_REALTIME;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(Explain(red).place_in_line(), 1u);
}

TEST_F(ClusterLineTest, RequestThatDoesNotFitIsPassed) {
  const StreamId large = OpenAndWait("blue", 5000);
  const StreamId small = OpenAndWait("red", 600);
  EXPECT_EQ(Explain(large).place_in_line(), 1u);
  Free(holder_);
  EXPECT_FALSE(Has(large));
  EXPECT_TRUE(Has(small));
}

TEST_F(ClusterLineTest, AWorkerIsKeptForTheFirstThatHasWaitedForLong) {
  const StreamId large = OpenAndWait("blue", 900);
  clock_.Advance(config_.line_patience - absl::Milliseconds(1));
  const StreamId before = OpenAndWait("red", 100);
  EXPECT_EQ(Explain(before).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  clock_.Advance(absl::Milliseconds(1));
  Execute(worker_, &w0_);
  coordinator::Tick(*cluster_);
  // Evaluates the request again, now that the worker is reserved for it.
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(large).gate().reason(), "NO_CAPACITY");
  EXPECT_THAT(Explain(large).gate().unblocked_by(),
              HasSubstr("more on w0, which is kept for it as the first in "
                        "line"));
  const StreamId small = OpenAndWait("red", 150);
  EXPECT_EQ(Explain(small).gate().reason(), "WAITS_IN_LINE");
  EXPECT_EQ(Explain(small).gate().message(),
            "worker w0, which has the memory, is kept for the first in line");
  EXPECT_EQ(Explain(small).decision().candidates(0).dropped_by(), "kept");
  // An operator who tries a placement sees the same.
  v1::TryPlacementRequest asked;
  asked.set_tenant("red");
  asked.set_asked_bytes(150);
  EXPECT_EQ(explain::TryPlacement(*cluster_, asked)->gate().reason(),
            "WAITS_IN_LINE");
  // Another worker is available to all.
  v1::WorkerState other = TestWorker("w1");
  other.set_free_bytes(200);
  const StreamId w1 = Join(other);
  Execute(w1, &other);
  EXPECT_TRUE(Has(small));
  // The reserved worker is available to a higher class.
  const StreamId urgent = OpenAndWait("red", 190);
  EXPECT_EQ(Explain(urgent).gate().reason(), "WAITS_IN_LINE");
  SetClass(urgent, v1::PRIORITY_CLASS_REALTIME);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(urgent).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  sessions::Close(*cluster_, urgent);
  sessions::Close(*cluster_, before);
  Free(holder_);
  EXPECT_TRUE(Has(large));
  // No worker is reserved any more.
  const StreamId last = OpenAndWait("red", 90);
  EXPECT_EQ(Explain(last).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
}

TEST_F(ClusterLineTest, ReservationOfARefusedRequestIsReleased) {
  const StreamId large = OpenAndWait("blue", 900);
  clock_.Advance(config_.line_patience);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  const StreamId small = OpenAndWait("red", 100);
  EXPECT_EQ(Explain(small).gate().reason(), "WAITS_IN_LINE");
  clock_.Advance(config_.lease_request_timeout - config_.line_patience);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(Next(large)->has_refused());
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(small).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
}

// More room does not help a request that waits for something else.
TEST_F(ClusterLineTest, NothingIsKeptForWhoWaitsForQuota) {
  for (Tenant& tenant : config_.tenants) {
    tenant.cohort = "lab";
    tenant.quotas[0].nominal = int64_t{1} << 30;
  }
  config_.tenants.push_back(TestTenant("green"));
  tenants::Set(*cluster_, config_.tenants);
  const StreamId other = OpenAndWait("blue", 100);
  EXPECT_EQ(Explain(other).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  const StreamId waits = OpenAndWait("red", 900);
  EXPECT_EQ(Explain(waits).gate().reason(), "QUOTA_EXCEEDED");
  clock_.Advance(config_.line_patience);
  Execute(worker_, &w0_);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(waits).gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(Explain(OpenAndWait("green", 100)).gate().reason(),
            "WORKER_ACKNOWLEDGEMENT");
}

TEST_F(ClusterLineTest, NewRequestDoesNotOvertakeWaitingOnes) {
  const StreamId red = OpenAndWait("red");
  // A lease has ended, and no request was tried since.
  sessions::Close(*cluster_, holder_);
  const StreamId blue = OpenAndWait("blue");
  // Blue is served first because it had nothing, although it came later.
  EXPECT_EQ(Explain(blue).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  const StreamId late = OpenAndWait("blue");
  EXPECT_EQ(Explain(late).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Explain(red).place_in_line() + Explain(late).place_in_line(), 3u);
}

TEST_F(ClusterLineTest, ALongLineIsNotTriedBecauseSomebodyComes) {
  config_.tenants[0].max_sessions = 100;
  tenants::Set(*cluster_, config_.tenants);
  for (int i = 0; i < 70; ++i) OpenAndWait("red");
  sessions::Close(*cluster_, holder_);
  const StreamId late = OpenAndWait("blue");
  EXPECT_EQ(Explain(late).gate().reason(), "WAITS_IN_LINE");
  EXPECT_EQ(Explain(late).gate().message(), "70 others wait for a worker");
  EXPECT_EQ(Explain(late).gate().unblocked_by(),
            "its turn, after those that wait ahead of it");
  EXPECT_EQ(Explain(late).place_in_line(), 1u);
  // The next report gives it its turn.
  Execute(worker_, &w0_);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(late));
}

TEST_F(ClusterLineTest, EndedRequestLeavesTheQueue) {
  const StreamId gone = OpenAndWait("red"), refused = OpenAndWait("blue");
  sessions::Close(*cluster_, gone);
  EXPECT_EQ(Explain(refused).line_length(), 1u);
  clock_.Advance(config_.lease_request_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  const auto response = Next(refused);
  EXPECT_EQ(response->refused().reason(), "NO_CAPACITY");
  // No request was served, so that no time can be predicted.
  EXPECT_FALSE(response->refused().has_retry_after());
  const StreamId next = OpenAndWait("red");
  EXPECT_EQ(Explain(next).line_length(), 1u);
}

// A clock on which every look takes `cost`.
class SlowClock : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    Advance(cost);
    return FakeClock::Monotonic();
  }
  absl::Duration cost;
};

TEST_F(ClusterLineTest, ReportsDoNotHaveAllTheTimeGoIntoTheLine) {
  SlowClock slow;
  cluster_ = MakeCluster(&config_, &tenants_, &slow, &random_);
  w0_ = TestWorker("w0");
  w0_.set_free_bytes(100);
  worker_ = Join(w0_);
  const StreamId waits = OpenAndWait("red");
  slow.cost = absl::Milliseconds(10);
  w0_.set_free_bytes(200);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  slow.cost = absl::ZeroDuration();
  w0_.set_free_bytes(1000);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  EXPECT_EQ(Explain(waits).gate().reason(), "NO_CAPACITY");
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Explain(waits).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
}

TEST_F(ClusterLineTest, RefusalSaysWhenToRetry) {
  const StreamId served = OpenAndWait("red"), refused = OpenAndWait("blue"),
                 other = OpenAndWait("blue");
  clock_.Advance(absl::Seconds(6));
  SetClass(served, v1::PRIORITY_CLASS_INTERACTIVE);
  SetClass(refused, v1::PRIORITY_CLASS_BATCH);
  SetClass(other, v1::PRIORITY_CLASS_BATCH);
  Free(holder_);
  EXPECT_TRUE(Has(served));
  clock_.Advance(absl::Seconds(4));
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  coordinator::Tick(*cluster_);
  // One request in ten seconds was served, and this one is the first.
  const double seconds = absl::ToDoubleSeconds(
      FromProtoDuration(Next(refused)->refused().retry_after()));
  EXPECT_NEAR(seconds, 10, 0.1);
}

// More requests wait than are tried at once.
TEST_F(ClusterLineTest, NewRequestIsTriedAfterALongQueue) {
  config_.tenants[0].max_sessions = 300;
  tenants::Set(*cluster_, config_.tenants);
  std::vector<StreamId> waiting;
  for (int i = 0; i < 200; ++i) waiting.push_back(OpenAndWait("red"));
  v1::WorkerState other = TestWorker("w1");
  other.set_free_bytes(1'000'000);
  Join(other);
  const auto in_line = [&] {
    return std::count_if(
        waiting.begin(), waiting.end(),
        [&](const StreamId& id) { return Explain(id).place_in_line() > 0; });
  };
  const auto left = in_line();
  EXPECT_GT(left, 0);
  EXPECT_LT(left, 200);
  // There is room for the request.
  waiting.push_back(OpenAndWait("red"));
  EXPECT_EQ(in_line(), left + 1);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(in_line(), 0);
}

}  // namespace
}  // namespace djinn::coordinator
