// Tests the choice of workers, and what operators see of it.
#include <atomic>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SharedWork MakeWork(double flops,
                    semantics::Phase phase = semantics::Phase::kLlmDecode) {
  auto work = std::make_shared<scheduler::Work>();
  work->Add({semantics::OpClass::kMatmul,
             phase,
             {static_cast<uint64_t>(flops), 0, 0},
             1});
  return work;
}

class ClusterPlacementTest : public ClusterTest {
 protected:
  static v1::WorkerState Priced(const std::string& id, double price,
                                double flops_per_second) {
    v1::WorkerState state = TestWorker(id);
    state.set_price_per_hour(price);
    state.mutable_speed()->set_flops_per_second(flops_per_second);
    state.mutable_speed()->set_bytes_per_second(1e12);
    return state;
  }
  // Opens a session whose program chooses a placement policy.
  StreamId OpenWith(const std::string& policy,
                    const std::string& tenant = "red") {
    v1::OpenSession open = TestOpen();
    open.set_placement_policy(policy);
    const absl::StatusOr<StreamId> id =
        sessions::Attach(*cluster_, *tenants_.Find(tenant), open,
                         std::make_shared<CountingWaker>());
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(Next(*id)->has_opened());
    return *id;
  }
  void Ask(const StreamId& session, uint32_t device,
           const std::string& policy = "", uint64_t size = 0) {
    v1::LeaseRequest request = TestLeaseRequest(device, 1, size);
    request.set_placement_policy(policy);
    EXPECT_EQ(requests::Request(*cluster_, session, request), absl::OkStatus());
  }
  v1::DeviceExplanation Explain(const StreamId& session, int device = 0) {
    const auto explanation = explain::ExplainSession(*cluster_, session.owner);
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    EXPECT_GT(explanation->devices_size(), device);
    return explanation->devices(device);
  }
  void SetPlacement(const std::string& tenant, PlacementWish wish) {
    std::vector<Tenant> tenants = config_.tenants;
    for (Tenant& each : tenants) {
      if (each.name == tenant) each.placement = wish;
    }
    tenants::Set(*cluster_, std::move(tenants));
  }
};

// Counts readings of the clock: evaluating what a lease's session announced
// reads it once.
class CountingClock : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    ++looks_;
    return FakeClock::Monotonic();
  }
  int looks() const { return looks_; }

 private:
  std::atomic<int> looks_ = 0;
};

TEST_F(ClusterPlacementTest, LosingAWorkerLooksAtEachOfItsLeasesOnce) {
  config_.tenants[0].max_sessions = 32;
  config_.tenants[0].totals.set_memory_bytes(uint64_t{1} << 40);
  tenants_.Replace(config_.tenants);
  CountingClock clock;
  const auto lose = [&](int sessions) {
    cluster_ = MakeCluster(&config_, &tenants_, &clock, &random_);
    v1::WorkerState state = TestWorker("w0");
    const StreamId worker = Join(state);
    for (int i = 0; i < sessions; ++i) {
      const StreamId session = Open("red");
      for (uint32_t device = 0; device < kMaxVirtualDevices; ++device) {
        // Each request includes content that is still to be uploaded.
        Ask(session, device, "", 1);
      }
    }
    // The leases may need several messages.
    int listed = 0;
    while (const auto desired = Desired(worker)) {
      listed += desired->leases_size();
    }
    EXPECT_EQ(listed, sessions * static_cast<int>(kMaxVirtualDevices));
    clock.Advance(config_.worker_timeout + absl::Seconds(1));
    const int before = clock.looks();
    coordinator::Tick(*cluster_);
    EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
    return clock.looks() - before;
  };
  // If each look went through all remaining leases, it would be 64 times as
  // many.
  EXPECT_LE(lose(32), 8 * lose(4));
  cluster_.reset();
}

TEST_F(ClusterPlacementTest, WaitingRequestIsServedOnceALeaseReturns) {
  v1::WorkerState full = TestWorker("w0");
  full.set_free_bytes(1000);
  const StreamId worker = Join(full);
  const StreamId session = Open("red");
  Ask(session, 0, "", 900);
  Execute(worker, &full);
  ASSERT_TRUE(Next(session)->has_granted());
  const std::string lease = LeaseId(full);
  Ask(session, 1, "", 900);
  EXPECT_EQ(Next(session), std::nullopt);
  v1::LeaseReturn returned;
  returned.set_lease_id(lease);
  EXPECT_EQ(requests::Return(*cluster_, session, returned), absl::OkStatus());
  Execute(worker, &full);
  Execute(worker, &full);
  EXPECT_TRUE(Next(session)->has_granted());
}

// A client that guesses a hash must not learn whether others have such bytes.
TEST_F(ClusterPlacementTest, OthersContentsNeitherShowNorDraw) {
  for (Tenant& tenant : config_.tenants) tenant.share_contents = true;
  tenants::Set(*cluster_, config_.tenants);
  v1::WorkerState warm = TestWorker("warm");
  AddContent("red", 1, 1'000'000'000, &warm);
  const StreamId worker = Join(warm);
  // The worker that is chosen among equals.
  v1::WorkerState cold = TestWorker("cold");
  const StreamId other = Join(cold);
  const StreamId session = Open("blue");
  Ask(session, 0, "", 1'000'000'000);
  const v1::PlacementDecision decision = Explain(session).decision();
  EXPECT_EQ(decision.worker_id(), "cold");
  ASSERT_THAT(decision.candidates(), SizeIs(2));
  for (const v1::PlacementCandidate& candidate : decision.candidates()) {
    EXPECT_FALSE(candidate.holder());
    EXPECT_EQ(candidate.terms().missing_bytes(), 1'000'000'000u);
  }
  Execute(other, &cold);
  const auto granted = Next(session);
  ASSERT_TRUE(granted.has_value() && granted->has_granted());
  EXPECT_THAT(granted->granted().placement_reason(),
              testing::Not(HasSubstr("holds")));
  sessions::Close(*cluster_, session);
  // The tenant has proven there that it has the bytes.
  AddContent("blue", 1, 1'000'000'000, &warm);
  ASSERT_EQ(workers::Report(*cluster_, worker, warm), absl::OkStatus());
  const StreamId again = Open("blue");
  Ask(again, 0, "", 1'000'000'000);
  Execute(worker, &warm);
  EXPECT_THAT(Next(again)->granted().placement_reason(),
              HasSubstr("holds 1.0 GB of 1.0 GB asked"));
}

TEST_F(ClusterPlacementTest, TheNearestWishCounts) {
  Join(Priced("dear", 10, 1e12));
  Join(Priced("cheap", 1, 1e11));
  const auto decided = [&](const StreamId& session, const std::string& policy) {
    Ask(session, 0, policy);
    const v1::PlacementDecision decision = Explain(session).decision();
    sessions::Close(*cluster_, session);
    return decision.policy() + " of the " + decision.policy_source();
  };
  EXPECT_EQ(decided(Open("red"), ""), "minimize_latency of the cluster");
  SetPlacement("red", {.policy = "load_balance"});
  EXPECT_EQ(decided(Open("red"), ""), "load_balance of the tenant");
  EXPECT_EQ(decided(Open("blue"), ""), "minimize_latency of the cluster");
  EXPECT_EQ(decided(OpenWith("minimize_cost"), ""),
            "minimize_cost of the session");
  EXPECT_EQ(decided(OpenWith("minimize_cost"), "maximize_throughput"),
            "maximize_throughput of the request");
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->placement_policy(),
            "load_balance");
  EXPECT_EQ(views::GetTenant(*cluster_, "blue")->placement_policy(),
            "minimize_latency");
}

TEST_F(ClusterPlacementTest, AnUnknownPolicyIsRefusedAndChangesNothing) {
  v1::OpenSession open = TestOpen();
  open.set_placement_policy("best");
  EXPECT_EQ(ErrorReason(sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                                         std::make_shared<CountingWaker>())
                            .status()),
            "POLICY_UNKNOWN");
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  const StreamId session = Open("red");
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_placement_policy("best");
  // The session continues.
  EXPECT_TRUE(requests::Request(*cluster_, session, request).ok());
  const auto refusal = Next(session);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->refused().reason(), "POLICY_UNKNOWN");
  EXPECT_THAT(explain::ExplainSession(*cluster_, session.owner)->devices(),
              IsEmpty());
}

TEST_F(ClusterPlacementTest, NumericsOfALostWorkerComeFromTheClient) {
  for (const std::string id : {"w0", "w1"}) {
    v1::WorkerState state = TestWorker(id);
    state.set_numerics("bits of " + id);
    Join(state);
  }
  for (const std::string id : {"w0", "w1"}) {
    const StreamId session = Open("red");
    v1::LeaseRequest request = TestLeaseRequest(0);
    request.set_numerics("bits of " + id);
    ASSERT_TRUE(requests::Request(*cluster_, session, request).ok());
    EXPECT_EQ(Explain(session).decision().worker_id(), id);
  }
  v1::LeaseRequest request = TestLeaseRequest(0);
  request.set_numerics(std::string(257, 'n'));
  EXPECT_FALSE(requests::Request(*cluster_, Open("blue"), request).ok());
}

TEST_F(ClusterPlacementTest, MoneyAndSpeedComeFromTheWorkers) {
  Join(Priced("dear", 20, 1e12));
  Join(Priced("cheap", 1, 1e11));
  const StreamId thrifty = OpenWith("minimize_cost");
  sessions::NoteGraph(*cluster_, thrifty, "fingerprint", MakeWork(1e10));
  Ask(thrifty, 0);
  const v1::PlacementDecision saved = Explain(thrifty).decision();
  EXPECT_EQ(saved.worker_id(), "cheap");
  EXPECT_EQ(saved.phase(), v1::PHASE_LLM_DECODE);
  ASSERT_THAT(saved.candidates(), SizeIs(2));
  EXPECT_DOUBLE_EQ(saved.candidates(0).terms().compute_seconds(), 0.1);
  EXPECT_DOUBLE_EQ(saved.candidates(0).terms().cost(), 0.1 / 3600);
  EXPECT_DOUBLE_EQ(saved.candidates(1).terms().cost(), 0.01 * 20 / 3600);
  const StreamId hurried = OpenWith("minimize_latency");
  sessions::NoteGraph(*cluster_, hurried, "fingerprint", MakeWork(1e10));
  Ask(hurried, 0);
  EXPECT_EQ(Explain(hurried).decision().worker_id(), "dear");
}

TEST_F(ClusterPlacementTest, AProgramsNextSessionIsKnownFromTheFirst) {
  Join(Priced("fast", 0, 1e12));
  const StreamId first = Open("red");
  sessions::NoteGraph(*cluster_, first, "a", MakeWork(1e9));
  sessions::NoteGraph(*cluster_, first, "b", MakeWork(1e9));
  // A graph that was defined before adds nothing.
  sessions::NoteGraph(*cluster_, first, "b", MakeWork(1e9));
  sessions::Close(*cluster_, first);
  const StreamId next = Open("red");
  Ask(next, 0);
  EXPECT_DOUBLE_EQ(
      Explain(next).decision().candidates(0).terms().compute_seconds(), 2e-3);
  // Another tenant's program of the same name is a different one.
  const StreamId other = Open("blue");
  Ask(other, 0);
  EXPECT_EQ(Explain(other).decision().candidates(0).terms().compute_seconds(),
            0);
}

TEST_F(ClusterPlacementTest, MeasuredRunsCorrectTheRoofline) {
  v1::WorkerState state = Priced("w0", 0, 1e12);
  const StreamId worker = Join(state);
  const StreamId session = Open("red");
  sessions::NoteGraph(*cluster_, session, "fingerprint", MakeWork(1e10));
  v1::HeldGraph* const graph = state.add_graphs();
  graph->set_fingerprint("fingerprint");
  graph->set_run_count(100);
  *graph->mutable_device_time() = ToProtoDuration(absl::Seconds(3));
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(workers::Report(*cluster_, worker, state).ok());
  Ask(session, 0);
  // 10 ms by the roofline, 30 ms measured.
  const v1::PlacementTerms terms =
      Explain(session).decision().candidates(0).terms();
  EXPECT_NEAR(terms.compute_factor(), 3, 1e-9);
  EXPECT_NEAR(terms.compute_seconds(), 0.03, 1e-9);
}

TEST_F(ClusterPlacementTest, TheLinkIsMeasuredByWhatClientsUpload) {
  v1::WorkerState near = TestWorker("near"), far = TestWorker("far");
  // Both declare the same bandwidth.
  near.set_link_bytes_per_second(1'000'000'000);
  far.set_link_bytes_per_second(1'000'000'000);
  near.set_client_bytes_per_second(500'000'000);
  far.set_client_bytes_per_second(1'000'000);
  Join(near);
  const StreamId worker = Join(far);
  const StreamId first = Open("red"), second = Open("red");
  Ask(first, 0, "", 1'000'000);
  const v1::PlacementDecision decision = Explain(first).decision();
  EXPECT_EQ(decision.worker_id(), "near");
  EXPECT_TRUE(decision.candidates(1).terms().link_measured());
  EXPECT_EQ(decision.candidates(1).terms().link_bytes_per_second(), 1e6);
  EXPECT_DOUBLE_EQ(decision.candidates(1).terms().transfer_seconds(), 1);
  // The measurement was recent, and has expired.
  far.clear_client_bytes_per_second();
  ASSERT_TRUE(workers::Report(*cluster_, worker, far).ok());
  Ask(second, 0, "", 1'000'000);
  EXPECT_EQ(Explain(second).decision().worker_id(), "far");
  EXPECT_FALSE(
      Explain(second).decision().candidates(0).terms().link_measured());
}

TEST_F(ClusterPlacementTest, LoadComesFromBusyTime) {
  v1::WorkerState busy = TestWorker("busy");
  const StreamId worker = Join(busy);
  Join(TestWorker("idle"));
  clock_.Advance(absl::Seconds(5));
  *busy.mutable_executed()->mutable_device_time() =
      ToProtoDuration(absl::Seconds(4));
  busy.mutable_executed()->set_runs(8);
  busy.set_queued_runs(2);
  ASSERT_TRUE(workers::Report(*cluster_, worker, busy).ok());
  const StreamId session = OpenWith("load_balance");
  Ask(session, 0);
  const v1::PlacementDecision decision = Explain(session).decision();
  EXPECT_EQ(decision.worker_id(), "idle");
  const v1::PlacementTerms& terms = decision.candidates(1).terms();
  // 80 % of 5 of the last 60 seconds, and two runs of half a second.
  EXPECT_NEAR(terms.load(), 0.8 * (1 - std::exp(-5.0 / 60)), 1e-9);
  EXPECT_NEAR(terms.queue_seconds(), 1, 1e-9);
}

TEST_F(ClusterPlacementTest, CordonedWorkersGetNoNewLeases) {
  const auto [worker, session, lease] = Granted("red");
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false)->cordoned());
  Ask(session, 1);
  const v1::DeviceExplanation device = Explain(session, 1);
  EXPECT_EQ(device.gate().reason(), "NO_SUITABLE_WORKER");
  EXPECT_EQ(device.gate().unblocked_by(), "uncordoning a worker");
  EXPECT_EQ(device.decision().candidates(0).dropped_by(), "cordon");
  // The existing lease continues, and a restart keeps the cordon.
  EXPECT_EQ(Explain(session, 0).state(), v1::LeaseInfo::GRANTED);
  const auto saved = persistence::Save(*cluster_);
  EXPECT_THAT(saved, testing::Contains(testing::Key("worker/w0")));
  EXPECT_FALSE(operations::Cordon(*cluster_, "w0", false, false)->cordoned());
  EXPECT_EQ(Explain(session, 1).gate().reason(), "WORKER_ACKNOWLEDGEMENT");
  EXPECT_EQ(
      ErrorReason(operations::Cordon(*cluster_, "w9", true, false).status()),
      "WORKER_UNKNOWN");
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, saved).ok());
  Join(TestWorker("w0"));
  EXPECT_TRUE(views::GetWorker(*cluster_, "w0")->cordoned());
}

TEST_F(ClusterPlacementTest, RequiredCapabilitiesFollowTheTenant) {
  v1::WorkerState big = TestWorker("big");
  big.add_capabilities("bfloat16");
  big.set_device("cuda:0");
  Join(TestWorker("small"));
  SetPlacement("red", {.required = {"cuda", "bfloat16"}});
  const StreamId session = Open("red");
  Ask(session, 0);
  EXPECT_THAT(Explain(session).gate().message(), HasSubstr("lacks cuda"));
  Join(big);
  EXPECT_EQ(Explain(session).decision().worker_id(), "big");
  EXPECT_THAT(views::GetTenant(*cluster_, "red")->required_capabilities(),
              ElementsAre("cuda", "bfloat16"));
}

TEST_F(ClusterPlacementTest, WorkersKeptForAPhaseGetNoOtherWork) {
  v1::WorkerState decoder = Priced("decoder", 0, 1e12);
  decoder.add_phases(v1::PHASE_LLM_DECODE);
  Join(decoder);
  const StreamId trainer = Open("red");
  sessions::NoteGraph(*cluster_, trainer, "training",
                      MakeWork(1e9, semantics::Phase::kTraining));
  Ask(trainer, 0);
  EXPECT_EQ(Explain(trainer).decision().candidates(0).dropped_by(), "phase");
  v1::TryPlacementRequest request;
  request.set_tenant("blue");
  request.set_phase(v1::PHASE_LLM_DECODE);
  EXPECT_EQ(explain::TryPlacement(*cluster_, request)->decision().worker_id(),
            "decoder");
}

// Between two reports, announced memory counts as taken.
TEST_F(ClusterPlacementTest, PromisedMemoryIsNotPromisedTwice) {
  w0_.set_free_bytes(1000);
  const StreamId worker = Join(w0_);
  const StreamId first = Open("red");
  Ask(first, 0, "", 700);
  EXPECT_EQ(Explain(first).decision().worker_id(), "w0");
  const StreamId second = Open("red");
  ASSERT_TRUE(
      requests::Request(*cluster_, second, TestLeaseRequest(0, 2, 700)).ok());
  EXPECT_EQ(Explain(second).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Explain(second).gate().unblocked_by(), "400 B more on w0");
  sessions::Close(*cluster_, first);
  Execute(worker, &w0_);
  EXPECT_EQ(Explain(second).decision().worker_id(), "w0");
}

// With many workers and waiting requests, not every report may cause a
// decision.
TEST_F(ClusterPlacementTest, OnlyReportsThatMayHelpAreReasonToTryAgain) {
  w0_.set_free_bytes(1000);
  const StreamId worker = Join(w0_);
  Ask(Open("red"), 0, "", 2000);
  const auto attempts = [this] {
    const std::string text = Metrics();
    const size_t at = text.find("result=\"no_capacity\"} ");
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string before = attempts();
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  w0_.set_free_bytes(500);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_EQ(attempts(), before);
  w0_.set_free_bytes(1500);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_NE(attempts(), before);
}

TEST_F(ClusterPlacementTest, ADryRunChangesNothing) {
  v1::TryPlacementRequest request;
  request.set_tenant("red");
  request.set_asked_bytes(1 << 20);
  EXPECT_EQ(explain::TryPlacement(*cluster_, request)->gate().reason(),
            "NO_WORKER");
  Join(w0_);
  const v1::TryPlacementResponse response =
      *explain::TryPlacement(*cluster_, request);
  EXPECT_FALSE(response.has_gate());
  EXPECT_EQ(response.decision().worker_id(), "w0");
  EXPECT_EQ(response.decision().looked_at(), 1u);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  const auto refusal = [&] {
    return ErrorReason(explain::TryPlacement(*cluster_, request).status());
  };
  request.set_policy("best");
  EXPECT_EQ(refusal(), "POLICY_UNKNOWN");
  request.clear_policy();
  request.set_phase(static_cast<v1::Phase>(77));
  EXPECT_EQ(refusal(), "PHASE_UNKNOWN");
  request.clear_phase();
  request.set_session_id(Open("blue").owner);
  EXPECT_EQ(refusal(), "SESSION_UNKNOWN");
  request.set_tenant("green");
  EXPECT_EQ(refusal(), "TENANT_UNKNOWN");
}

TEST_F(ClusterPlacementTest, ATenantIsExplainedBesideItsPeers) {
  const auto [worker, session, lease] = Granted("red");
  operations::Cordon(*cluster_, "w0", true, false).status().IgnoreError();
  Ask(session, 1);
  *w0_.mutable_sessions(0)->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(absl::Seconds(5));
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  const v1::TenantExplanation explanation =
      *explain::ExplainTenant(*cluster_, "red");
  ASSERT_THAT(explanation.held(), SizeIs(1));
  EXPECT_EQ(explanation.held(0).virtual_device(), 1u);
  EXPECT_EQ(explanation.held(0).gate().reason(), "NO_SUITABLE_WORKER");
  ASSERT_THAT(explanation.standings(), SizeIs(2));
  EXPECT_EQ(explanation.standings(0).tenant(), "blue");
  EXPECT_EQ(explanation.standings(0).device_time_share(), 0);
  EXPECT_EQ(explanation.standings(0).fair_share(), 0);
  EXPECT_EQ(explanation.standings(1).weight(), 1);
  EXPECT_EQ(explanation.standings(1).fair_share(), 1);
  EXPECT_EQ(explanation.standings(1).lease_count(), 1u);
  EXPECT_EQ(explanation.standings(1).waiting_count(), 1u);
  EXPECT_EQ(explanation.standings(1).device_time_share(), 1);
  EXPECT_EQ(ErrorReason(explain::ExplainTenant(*cluster_, "green").status()),
            "TENANT_UNKNOWN");
  EXPECT_EQ(ErrorReason(explain::ExplainSession(*cluster_, "nobody").status()),
            "SESSION_UNKNOWN");
}

TEST_F(ClusterPlacementTest, PreemptionsAreExplained) {
  const auto [worker, session, lease] = Granted("red");
  EXPECT_FALSE(Explain(session).has_yielded());
  v1::Yielded* const yielded = w0_.mutable_sessions(0)->mutable_yielded();
  yielded->set_count(2);
  yielded->set_last_tenant("blue");
  EXPECT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_EQ(Explain(session).yielded().count(), 2u);
  EXPECT_EQ(views::GetLease(*cluster_, LeaseId(w0_))->yielded().last_tenant(),
            "blue");
}

TEST_F(ClusterPlacementTest, RunsOutOfCreditAreExplained) {
  const auto [worker, session, lease] = Granted("red");
  EXPECT_FALSE(Explain(session).has_gate());
  w0_.mutable_sessions(0)->set_out_of_credit(true);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_EQ(Explain(session).gate().reason(), "OUT_OF_CREDIT");
  EXPECT_EQ(Explain(session).gate().unblocked_by(),
            "more credits in the configuration");
}

// Returns the device-seconds that arrive per second, by phase.
double Of(const ClusterDemand& demand, semantics::Phase phase) {
  return demand.devices[static_cast<size_t>(phase)];
}

class ClusterDemandTest : public ClusterPlacementTest {
 protected:
  absl::StatusOr<ClusterDemand> Demand() { return demand::Demand(*cluster_); }
  // Lets a heartbeat pass in which the worker did this work for the session.
  void Work(const StreamId& worker, absl::Duration device_time, uint64_t runs,
            uint32_t queued) {
    clock_.Advance(absl::Seconds(2));
    v1::HeldGraph* const graph =
        w0_.graphs_size() > 0 ? w0_.mutable_graphs(0) : w0_.add_graphs();
    graph->set_fingerprint("decode");
    graph->set_run_count(graph->run_count() + runs);
    *graph->mutable_device_time() =
        ToProtoDuration(FromProtoDuration(graph->device_time()) + device_time);
    *w0_.mutable_executed()->mutable_device_time() = graph->device_time();
    w0_.mutable_executed()->set_runs(graph->run_count());
    w0_.set_queued_runs(queued);
    w0_.mutable_sessions(0)->mutable_use()->set_queued_runs(queued);
    ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  }
};

TEST_F(ClusterDemandTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(ErrorReason(Demand().status()), "DEMAND_UNKNOWN");
  clock_.Advance(config_.worker_timeout);
  EXPECT_TRUE(Demand().ok());
  const StreamId worker = Join(w0_);
  clock_.Advance(config_.worker_timeout / 2 + absl::Seconds(1));
  EXPECT_THAT(std::string(Demand().status().message()),
              HasSubstr("worker w0 has not reported for 6s"));
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_TRUE(Demand().ok());
}

TEST_F(ClusterDemandTest, DevicesWithoutAWorkerAreDemand) {
  clock_.Advance(config_.worker_timeout);
  const StreamId session = Open("red");
  sessions::NoteGraph(*cluster_, session, "decode", MakeWork(1e9));
  Ask(session, 0);
  Ask(session, 1);
  EXPECT_EQ(Of(*Demand(), semantics::Phase::kLlmDecode), 2);
  Join(w0_);
  EXPECT_EQ(Of(*Demand(), semantics::Phase::kLlmDecode), 0);
}

TEST_F(ClusterDemandTest, UnservedRunsCountAsDemand) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  sessions::NoteGraph(*cluster_, session, "decode", MakeWork(1e9));
  Grant(session, 0, worker, &w0_);
  // The device is fully busy: 2 s in 2 s, at 0.1 s a run. 20 more runs wait
  // each time.
  for (int i = 0; i < 60; ++i) {
    Work(worker, absl::Seconds(2), 20, 20 * (i + 1));
  }
  const ClusterDemand demand = *Demand();
  // Work of 2 devices arrives, and 120 s of it must be caught up within a
  // minute.
  EXPECT_NEAR(Of(demand, semantics::Phase::kLlmDecode), 2 + 2, 0.1);
  EXPECT_EQ(demand.all_kept_workers, 1);
  EXPECT_EQ(
      demand.kept_workers[static_cast<size_t>(semantics::Phase::kLlmDecode)],
      1);
  EXPECT_EQ(
      demand.kept_workers[static_cast<size_t>(semantics::Phase::kTraining)], 0);
}

TEST_F(ClusterDemandTest, MetricsSayItOrNothing) {
  const auto scrape = [this] { return Metrics(); };
  EXPECT_THAT(scrape(), testing::Not(HasSubstr("djinn_scale")));
  clock_.Advance(config_.worker_timeout);
  Ask(Open("red"), 0);
  EXPECT_THAT(
      scrape(),
      testing::AllOf(
          HasSubstr("djinn_scale_demand_devices{phase=\"unknown\"} 1\n"),
          HasSubstr("djinn_scale_demand_devices{phase=\"training\"} 0\n"),
          HasSubstr("djinn_scale_desired_workers{phase=\"unknown\"} 2\n")));
}

}  // namespace
}  // namespace djinn::coordinator
