#include "scheduler/placement/placement.h"

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint64_t kModel = 90'900'000;
constexpr StateKey kModelKey = 7;

WorkerFacts Idle(const std::string& id) {
  WorkerFacts worker;
  worker.id = id;
  worker.device = "cpu";
  worker.memory_bytes = worker.available_bytes = 16'000'000'000;
  return worker;
}

class PlacementTest : public testing::Test {
 protected:
  void Add(WorkerFacts facts, bool holds_model = false) {
    const std::string id = facts.id;
    fleet_.Put(std::move(facts));
    if (holds_model) fleet_.SetHeld(id, {kModelKey});
  }
  Decision Decide(const Request& request,
                  absl::string_view policy = kDefaultPolicy) {
    return Place(request, fleet_, **FindPolicy(policy), factors_, &random_);
  }
  static Request ForModel() {
    Request request;
    request.asked_bytes = kModel;
    request.state = {{kModelKey, kModel}};
    return request;
  }
  static const Considered& Of(const Decision& decision,
                              const std::string& worker) {
    for (const Considered& considered : decision.considered) {
      if (considered.worker_id == worker) return considered;
    }
    ADD_FAILURE() << worker << " was not looked at";
    return decision.considered.front();
  }

  Fleet fleet_;
  semantics::CostFactors factors_;
  Randomness random_;
};

TEST_F(PlacementTest, PrefersWhoHoldsTheModelAndSaysSo) {
  WorkerFacts holder = Idle("w1");
  holder.available_bytes -= kModel;
  holder.leases = 1;
  Add(Idle("w0"));
  Add(holder, true);
  Add(Idle("w2"));
  const Decision decision = Decide(ForModel());
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(decision.reason,
            "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease");
  ASSERT_THAT(decision.considered, SizeIs(3));
  EXPECT_TRUE(decision.considered[0].holder);
  EXPECT_EQ(decision.considered[0].terms.missing_bytes, 0u);
  EXPECT_DOUBLE_EQ(decision.considered[0].score, 1e-3);
  EXPECT_DOUBLE_EQ(Of(decision, "w0").terms.transfer_seconds, 0.0909);
}

TEST_F(PlacementTest, MeasuredClientLinkCounts) {
  Add(Idle("w0"));
  fleet_.Update("w0", [](WorkerFacts* facts) {
    facts->link_bytes_per_second = 1e9;
    facts->client_bytes_per_second = 1e5;
  });
  Request request = ForModel();
  const Decision decision = Decide(request);
  EXPECT_TRUE(Of(decision, "w0").terms.link_measured);
  EXPECT_EQ(Of(decision, "w0").terms.link_bytes_per_second, 1e5);
  EXPECT_DOUBLE_EQ(Of(decision, "w0").terms.transfer_seconds, 909);
  // State on another worker does not use the measured link.
  request.measured_link = [](const std::string&) { return 0.0; };
  const Decision moved = Decide(request);
  EXPECT_FALSE(Of(moved, "w0").terms.link_measured);
  EXPECT_EQ(Of(moved, "w0").terms.link_bytes_per_second, 1e9);
}

TEST_F(PlacementTest, AMeasuredLinkCountsBeforeTheConfiguredOne) {
  for (const char* id : {"w0", "w1", "w2"}) Add(Idle(id));
  fleet_.Update("w0",
                [](WorkerFacts* facts) { facts->link_bytes_per_second = 1e9; });
  fleet_.Update("w1",
                [](WorkerFacts* facts) { facts->link_bytes_per_second = 1e6; });
  Request request = ForModel();
  request.measured_link = [](const std::string& worker_id) {
    return worker_id == "w0" ? 1e5 : 0.0;
  };
  const Decision decision = Decide(request);
  const Terms& measured = Of(decision, "w0").terms;
  EXPECT_TRUE(measured.link_measured);
  EXPECT_EQ(measured.link_bytes_per_second, 1e5);
  EXPECT_DOUBLE_EQ(measured.transfer_seconds, 909);
  const Terms& configured = Of(decision, "w1").terms;
  EXPECT_FALSE(configured.link_measured);
  EXPECT_EQ(configured.link_bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(configured.transfer_seconds, 90.9);
  // Without either, a usual bandwidth is assumed, and not shown as a known one.
  const Terms& unknown = Of(decision, "w2").terms;
  EXPECT_FALSE(unknown.link_measured);
  EXPECT_EQ(unknown.link_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(unknown.transfer_seconds, 0.0909);
  EXPECT_EQ(decision.worker_id, "w2");
}

TEST_F(PlacementTest, LoadOutweighsAffinityInTheEnd) {
  WorkerFacts holder = Idle("w1");
  holder.queued_runs = 100;
  holder.queued_seconds = 0.5;
  Add(Idle("w0"));
  Add(holder, true);
  EXPECT_EQ(Decide(ForModel()).worker_id, "w0");
}

TEST_F(PlacementTest, SessionsSpreadOverEqualWorkers) {
  WorkerFacts busy = Idle("w0");
  busy.leases = 1;
  Add(busy);
  Add(Idle("w1"));
  const Decision decision = Decide({});
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(decision.reason,
            "best of 2 by minimize_latency; 0 queued runs, 0 leases");
}

TEST_F(PlacementTest, DevicesOfOneSessionGoToDifferentWorkersWhenPossible) {
  WorkerFacts used = Idle("w0");
  used.leases = 1;
  Add(used, true);
  Request request = ForModel();
  request.session_leases = {{"w0", 1}};
  const Decision alone = Decide(request);
  EXPECT_EQ(alone.worker_id, "w0");
  EXPECT_THAT(alone.reason, HasSubstr("shared with this session"));
  WorkerFacts other = Idle("w1");
  other.queued_seconds = 5;
  Add(other);
  const Decision decision = Decide(request);
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(Of(decision, "w0").dropped_by, "spread");
}

TEST_F(PlacementTest, AWorkerThatWasNotReachedComesLast) {
  Add(Idle("w0"));
  Request request;
  request.unreached = {"w0"};
  EXPECT_EQ(Decide(request).worker_id, "w0");
  WorkerFacts other = Idle("w1");
  other.queued_seconds = 5;
  Add(other);
  const Decision decision = Decide(request);
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(Of(decision, "w0").dropped_by, "reach");
  // A worker with another device of the session is better than one out of
  // reach.
  request.session_leases = {{"w1", 1}};
  EXPECT_EQ(Decide(request).worker_id, "w1");
}

TEST_F(PlacementTest, AWorkerWithOtherNumericsComesLast) {
  WorkerFacts other = Idle("w0");
  other.numerics = "other";
  Add(other);
  Request request;
  request.numerics = "same";
  EXPECT_EQ(Decide(request).worker_id, "w0");
  WorkerFacts same = Idle("w1");
  same.numerics = "same";
  same.queued_seconds = 5;
  Add(same);
  const Decision decision = Decide(request);
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(Of(decision, "w0").dropped_by, "numerics");
  // It is no use to reach a worker that the client refuses.
  request.unreached = {"w1"};
  EXPECT_EQ(Decide(request).worker_id, "w1");
  EXPECT_EQ(Decide({}).worker_id, "w0");
}

TEST_F(PlacementTest, TiesGoToFreeMemoryThenToTheSmallerId) {
  WorkerFacts fuller = Idle("w0");
  fuller.available_bytes -= 1;
  Add(fuller);
  Add(Idle("w2"));
  Add(Idle("w1"));
  EXPECT_EQ(Decide({}).worker_id, "w1");
}

TEST_F(PlacementTest, SaysWhetherWaitingMayHelp) {
  const Decision nobody = Decide({});
  EXPECT_EQ(ErrorReason(nobody.obstacle), "NO_WORKER");
  EXPECT_EQ(nobody.unblocked_by, "a worker that joins");
  WorkerFacts busy = Idle("w0");
  busy.available_bytes = 1000;
  Add(busy);
  const Decision now = Decide(ForModel());
  EXPECT_EQ(now.worker_id, "");
  EXPECT_EQ(ErrorReason(now.obstacle), "NO_CAPACITY");
  EXPECT_EQ(now.unblocked_by, "90.9 MB more on w0");
  // The error, which clients see, does not tell how much others use.
  busy.available_bytes = 2000;
  Add(busy);
  EXPECT_EQ(Decide(ForModel()).obstacle, now.obstacle);
  Request huge;
  huge.asked_bytes = 10'000'000'000'000;
  const Decision never = Decide(huge);
  EXPECT_EQ(ErrorReason(never.obstacle), "TOO_LARGE");
  EXPECT_THAT(std::string(never.obstacle.message()),
              HasSubstr("asked 10.0 TB"));
  // State that the worker holds needs no room.
  busy.available_bytes = 0;
  Add(busy, true);
  EXPECT_EQ(Decide(ForModel()).worker_id, "w0");
}

TEST_F(PlacementTest, AFailingDeviceGetsNoWork) {
  WorkerFacts failing = Idle("failing");
  failing.failure = "Xid 79";
  Add(failing);
  const Decision none = Decide(Request());
  EXPECT_EQ(Of(none, "failing").dropped_by, "failure");
  EXPECT_EQ(Of(none, "failing").drop_reason, "has a failing device: Xid 79");
  EXPECT_EQ(ErrorReason(none.obstacle), "NO_SUITABLE_WORKER");
  EXPECT_THAT(none.unblocked_by, HasSubstr("repairing or resetting"));
  Add(Idle("works"));
  EXPECT_EQ(Decide(Request()).worker_id, "works");
}

TEST_F(PlacementTest, EachFilterSaysWhatIsWrong) {
  WorkerFacts cordoned = Idle("cordoned");
  cordoned.cordoned = true;
  Add(cordoned);
  WorkerFacts decoder = Idle("decoder");
  decoder.phases = 1u << static_cast<unsigned>(semantics::Phase::kLlmDecode);
  decoder.capabilities = {"bfloat16"};
  Add(decoder);
  Add(Idle("plain"));
  Add(Idle("barred"));
  Request request;
  request.required = {"cpu", "bfloat16"};
  request.phase = semantics::Phase::kLlmPrefill;
  request.barred = [](const std::string& id) {
    return id == "barred" ? "has to forget the session first" : "";
  };
  const Decision none = Decide(request);
  EXPECT_EQ(Of(none, "cordoned").dropped_by, "cordon");
  EXPECT_EQ(Of(none, "decoder").dropped_by, "phase");
  EXPECT_EQ(Of(none, "plain").drop_reason, "lacks bfloat16");
  EXPECT_EQ(Of(none, "barred").dropped_by, "session");
  EXPECT_EQ(ErrorReason(none.obstacle), "NO_SUITABLE_WORKER");
  EXPECT_EQ(none.obstacle.message(),
            "none of 4 workers is fit: 1 has to forget the session first, 1 is "
            "cordoned, 1 is kept for other phases, 1 lacks bfloat16");
  EXPECT_THAT(none.unblocked_by, HasSubstr("uncordoning a worker"));
  request.phase = semantics::Phase::kLlmDecode;
  EXPECT_EQ(Decide(request).worker_id, "decoder");
  // Unknown work may go to any worker.
  request.phase = semantics::Phase::kUnspecified;
  EXPECT_EQ(Decide(request).worker_id, "decoder");
}

TEST_F(PlacementTest, ComputingFollowsTheRooflineAndWhatWasLearned) {
  WorkerFacts fast = Idle("fast");
  fast.device = "cuda";
  fast.speed = {1e12, 1e11, 0};
  WorkerFacts slow = Idle("slow");
  slow.speed = {1e11, 1e11, 0};
  Add(fast);
  Add(slow);
  Work work;
  const semantics::Phase phase = semantics::Phase::kForward;
  work.Add({semantics::OpClass::kMatmul, phase, {1'000'000'000, 0, 0}, 1});
  Request request;
  request.work = &work;
  Decision decision = Decide(request);
  EXPECT_EQ(decision.worker_id, "fast");
  EXPECT_DOUBLE_EQ(Of(decision, "fast").terms.compute_seconds, 1e-3);
  EXPECT_DOUBLE_EQ(Of(decision, "slow").terms.compute_seconds, 1e-2);
  // Such products turn out to be slow there.
  factors_.Learn(semantics::OpClass::kMatmul, phase, "cuda", 1, 50);
  factors_.Learn(semantics::OpClass::kMatmul, phase, "cuda", 1, 5000);
  decision = Decide(request);
  EXPECT_EQ(decision.worker_id, "slow");
  EXPECT_GT(Of(decision, "fast").terms.compute_factor, 10);
}

// Each of the workers is best in one respect.
TEST_F(PlacementTest, PoliciesDifferWhereTheyShould) {
  Work work;
  work.Add({semantics::OpClass::kMatmul,
            semantics::Phase::kForward,
            {10'000'000'000, 0, 0},
            1});
  WorkerFacts quick = Idle("quick");  // waits 50 ms, computes 10 ms
  quick.speed = {1e12, 1e11, 0};
  quick.queued_seconds = 0.05;
  quick.price_per_second = 10;
  quick.busy_share = 0.8;
  WorkerFacts near = Idle("near");  // waits nothing, computes 40 ms
  near.speed = {2.5e11, 1e11, 0};
  near.price_per_second = 5;
  near.busy_share = 0.5;
  WorkerFacts cheap = Idle("cheap");  // waits 1 s, computes 80 ms
  cheap.speed = {1.25e11, 1e11, 0};
  cheap.queued_seconds = 1;
  cheap.price_per_second = 0.1;
  cheap.busy_share = 0.9;
  WorkerFacts idle = Idle("idle");  // computes 400 ms
  idle.speed = {2.5e10, 1e10, 0};
  idle.price_per_second = 5;
  for (const WorkerFacts& facts : {quick, near, cheap, idle}) Add(facts);
  Request request;
  request.work = &work;
  EXPECT_EQ(Decide(request, "minimize_latency").worker_id, "near");
  EXPECT_EQ(Decide(request, "maximize_throughput").worker_id, "quick");
  EXPECT_EQ(Decide(request, "minimize_cost").worker_id, "cheap");
  EXPECT_EQ(Decide(request, "load_balance").worker_id, "idle");
}

TEST_F(PlacementTest, WorkOfWhichNothingIsKnownGoesWhereAnHourIsCheapest) {
  WorkerFacts dear = Idle("a");
  dear.price_per_second = 2;
  WorkerFacts cheap = Idle("b");
  cheap.price_per_second = 1;
  cheap.leases = 3;
  Add(dear);
  Add(cheap);
  EXPECT_EQ(Decide({}, "minimize_cost").worker_id, "b");
  EXPECT_EQ(Decide({}, "minimize_latency").worker_id, "a");
}

TEST_F(PlacementTest, APolicyFromOutsideDecides) {
  WorkerFacts holder = Idle("w1");
  holder.queued_seconds = 1000;
  Add(Idle("w0"));
  Add(holder, true);
  const Decision decision = Decide(ForModel(), "fewest_bytes");
  EXPECT_EQ(decision.worker_id, "w1");
  EXPECT_EQ(decision.policy, "fewest_bytes");
}

TEST_F(PlacementTest, LooksAtFewOfMany) {
  for (int i = 0; i < 5000; ++i) {
    Add(Idle("w" + std::to_string(i)), i % 10 == 0);
  }
  const Decision decision = Decide(ForModel());
  EXPECT_THAT(decision.considered,
              SizeIs(CandidateWalk::kMaxHolders + PlacementOptions().draws));
  EXPECT_TRUE(fleet_.Find(decision.worker_id)->held.contains(kModelKey));
}

TEST_F(PlacementTest, LooksOnWhenAllFall) {
  for (int i = 0; i < 200; ++i) {
    WorkerFacts full = Idle("w" + std::to_string(i));
    if (i != 177) full.available_bytes = 0;
    Add(full);
  }
  EXPECT_EQ(Decide(ForModel()).worker_id, "w177");
  fleet_.Remove("w177");
  for (int i = 200; i < 5000; ++i) {
    WorkerFacts full = Idle("w" + std::to_string(i));
    full.available_bytes = 0;
    Add(full);
  }
  const Decision decision = Decide(ForModel());
  EXPECT_EQ(ErrorReason(decision.obstacle), "NO_CAPACITY");
  EXPECT_THAT(decision.considered, SizeIs(kMaxLookedAt));
}

}  // namespace
}  // namespace djinn::scheduler
