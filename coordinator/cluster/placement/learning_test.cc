// Tests that knowledge about work survives a restart.
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "coordinator/admin/explain.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

using State = std::map<std::string, std::string>;

SharedWork MakeWork(uint64_t flops,
                    semantics::Phase phase = semantics::Phase::kLlmDecode) {
  auto work = std::make_shared<scheduler::Work>();
  work->Add({semantics::OpClass::kMatmul, phase, {flops, 0, 0}, 1});
  return work;
}

// For an unknown program, the worker with the cheapest hour wins. For known
// work, the worker that does it for less wins: the expensive one, as long as it
// is as fast as it claims.
class ClusterLearningTest : public ClusterTest {
 protected:
  ClusterLearningTest() {
    config_.placement_policy = "minimize_cost";
    RestartWith({});
  }

  void RestartWith(const State& state) {
    Restart();
    EXPECT_EQ(persistence::Restore(*cluster_, state), absl::OkStatus());
    dear_ = MakeWorker("dear", "cuda:0", 5, 1e12);
    dear_id_ = Join(dear_);
    Join(MakeWorker("cheap", "cpu", 1, 1e11));
  }
  static v1::WorkerState MakeWorker(const std::string& id,
                                    const std::string& device, double price,
                                    double flops_per_second) {
    v1::WorkerState state = TestWorker(id);
    state.set_device(device);
    state.set_price_per_hour(price);
    state.mutable_speed()->set_flops_per_second(flops_per_second);
    state.mutable_speed()->set_bytes_per_second(1e12);
    return state;
  }
  StreamId OpenProgram(const std::string& tenant, const std::string& program,
                       const std::string& resume = "") {
    v1::OpenSession open = TestOpen(resume);
    open.set_program(program);
    const absl::StatusOr<StreamId> id =
        sessions::Attach(*cluster_, *tenants_.Find(tenant), open,
                         std::make_shared<CountingWaker>());
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(Next(*id)->has_opened());
    return *id;
  }
  // Plays a whole session.
  void Run(const std::string& tenant, const std::string& program,
           uint64_t flops = 1'000'000'000'000) {
    const StreamId session = OpenProgram(tenant, program);
    sessions::NoteGraph(*cluster_, session, "s", MakeWork(flops));
    sessions::Close(*cluster_, session);
  }
  // Has the expensive worker report `time` for a run that takes a second at
  // best.
  void Measure(absl::Duration time) {
    if (dear_.graphs().empty()) dear_.add_graphs()->set_fingerprint("s");
    v1::HeldGraph* const graph = dear_.mutable_graphs(0);
    graph->set_run_count(graph->run_count() + 1);
    *graph->mutable_device_time() =
        ToProtoDuration(FromProtoDuration(graph->device_time()) + time);
    EXPECT_EQ(workers::Report(*cluster_, dear_id_, dear_), absl::OkStatus());
  }
  // Returns the decision about the first lease of a session.
  v1::PlacementDecision FirstLease(const std::string& tenant,
                                   const std::string& program) {
    const StreamId session = OpenProgram(tenant, program);
    EXPECT_EQ(requests::Request(*cluster_, session, TestLeaseRequest(0)),
              absl::OkStatus());
    const auto explanation = explain::ExplainSession(*cluster_, session.owner);
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    v1::PlacementDecision decision = explanation->devices(0).decision();
    decision.clear_age();
    sessions::Close(*cluster_, session);
    return decision;
  }
  std::string Place(const std::string& tenant = "red",
                    const std::string& program = "train") {
    return FirstLease(tenant, program).worker_id();
  }

  v1::WorkerState dear_;
  StreamId dear_id_;
};

TEST_F(ClusterLearningTest, AProgramIsPlacedByItsHistoryAfterARestart) {
  EXPECT_EQ(Place(), "cheap");
  Run("red", "train");
  const v1::PlacementDecision before = FirstLease("red", "train");
  EXPECT_EQ(before.worker_id(), "dear");
  EXPECT_EQ(before.phase(), v1::PHASE_LLM_DECODE);
  const State state = persistence::Save(*cluster_);
  RestartWith(state);
  EXPECT_EQ(FirstLease("red", "train").SerializeAsString(),
            before.SerializeAsString());
  // The knowledge also survives the next restart.
  RestartWith(persistence::Save(*cluster_));
  EXPECT_EQ(Place(), "dear");
  RestartWith({});
  EXPECT_EQ(Place(), "cheap");
}

TEST_F(ClusterLearningTest, MeasuredTimesSurviveARestart) {
  Run("red", "train");
  Measure(absl::Seconds(9));
  const v1::PlacementDecision before = FirstLease("red", "train");
  EXPECT_EQ(before.worker_id(), "cheap");
  RestartWith(persistence::Save(*cluster_));
  EXPECT_EQ(FirstLease("red", "train").SerializeAsString(),
            before.SerializeAsString());
}

TEST_F(ClusterLearningTest, LastSessionDecidesThePhase) {
  const StreamId session = OpenProgram("red", "train");
  for (const char* srg_graph : {"s", "t"}) {
    sessions::NoteGraph(*cluster_, session, srg_graph,
                        MakeWork(1'000'000'000'000));
  }
  sessions::Close(*cluster_, session);
  EXPECT_EQ(FirstLease("red", "train").phase(), v1::PHASE_LLM_DECODE);
  const StreamId last = OpenProgram("red", "train");
  sessions::NoteGraph(*cluster_, last, "u",
                      MakeWork(1, semantics::Phase::kLlmPrefill));
  sessions::Close(*cluster_, last);
  EXPECT_EQ(FirstLease("red", "train").phase(), v1::PHASE_LLM_PREFILL);
}

// One worker computes fast, the other has fast memory.
class ClusterPhaseTimesTest : public ClusterTest {
 protected:
  ClusterPhaseTimesTest() {
    arithmetic_ = MakeWorker("arithmetic", 1e13, 1e11);
    arithmetic_id_ = Join(arithmetic_);
    memory_id_ = Join(MakeWorker("memory", 1e12, 1e12));
  }

  static v1::WorkerState MakeWorker(const std::string& id, double flops,
                                    double bytes) {
    v1::WorkerState state = TestWorker(id);
    state.mutable_speed()->set_flops_per_second(flops);
    state.mutable_speed()->set_bytes_per_second(bytes);
    return state;
  }
  static SharedWork Reading(uint64_t bytes) {
    auto work = std::make_shared<scheduler::Work>();
    work->Add({semantics::OpClass::kMatmul,
               semantics::Phase::kLlmDecode,
               {0, bytes, 0},
               1});
    return work;
  }
  StreamId OpenProgram() {
    v1::OpenSession open = TestOpen("");
    open.set_program("generate");
    const absl::StatusOr<StreamId> id =
        sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                         std::make_shared<CountingWaker>());
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(Next(*id)->has_opened());
    return *id;
  }
  // Reports a prompt of 0.1 s, and tokens of 0.05 s each that took `tokens`
  // together.
  void Generate(absl::Duration tokens) {
    const StreamId session = OpenProgram();
    EXPECT_EQ(requests::Request(*cluster_, session, TestLeaseRequest(0)),
              absl::OkStatus());
    Execute(arithmetic_id_, &arithmetic_);
    ASSERT_EQ(arithmetic_.sessions_size(), 1);
    sessions::NoteGraph(
        *cluster_, session, "prompt",
        MakeWork(1'000'000'000'000, semantics::Phase::kLlmPrefill));
    sessions::NoteGraph(*cluster_, session, "token", Reading(5'000'000'000));
    v1::LeaseUse* const use =
        arithmetic_.mutable_sessions(0)->mutable_lease_use();
    const auto add = [&](v1::Phase phase, absl::Duration time) {
      v1::PhaseUse* const added = use->add_phases();
      added->set_phase(phase);
      *added->mutable_device_time() = ToProtoDuration(time);
    };
    add(v1::PHASE_LLM_PREFILL, absl::Milliseconds(100));
    add(v1::PHASE_LLM_DECODE, tokens);
    *use->mutable_device_time() =
        ToProtoDuration(absl::Milliseconds(100) + tokens);
    EXPECT_EQ(workers::Report(*cluster_, arithmetic_id_, arithmetic_),
              absl::OkStatus());
    sessions::Close(*cluster_, session);
    Execute(arithmetic_id_, &arithmetic_);
  }
  std::string Place() {
    const StreamId session = OpenProgram();
    EXPECT_EQ(requests::Request(*cluster_, session, TestLeaseRequest(0)),
              absl::OkStatus());
    const auto explanation = explain::ExplainSession(*cluster_, session.owner);
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    const std::string worker = explanation->devices(0).decision().worker_id();
    sessions::Close(*cluster_, session);
    return worker;
  }

  v1::WorkerState arithmetic_;
  StreamId arithmetic_id_, memory_id_;
};

TEST_F(ClusterPhaseTimesTest, APromptsProgramGoesWhereComputingIsFast) {
  Generate(absl::Milliseconds(50));
  EXPECT_EQ(Place(), "arithmetic");
}

TEST_F(ClusterPhaseTimesTest, OneThatWritesMuchGoesWhereMemoryIs) {
  Generate(absl::Seconds(20));
  EXPECT_EQ(Place(), "memory");
}

TEST_F(ClusterLearningTest, ASessionThatBeganEarlierIsNoWholeOne) {
  const StreamId session = OpenProgram("red", "train");
  for (const char* srg_graph : {"s", "t"}) {
    sessions::NoteGraph(*cluster_, session, srg_graph,
                        MakeWork(1'000'000'000'000));
  }
  RestartWith(persistence::Save(*cluster_));
  const StreamId resumed = OpenProgram("red", "train", session.owner);
  sessions::NoteGraph(*cluster_, resumed, "u",
                      MakeWork(1, semantics::Phase::kLlmPrefill));
  sessions::Close(*cluster_, resumed);
  EXPECT_EQ(FirstLease("red", "train").phase(), v1::PHASE_LLM_DECODE);
}

TEST_F(ClusterLearningTest, TenantsDoNotSeeEachOthersHistory) {
  Run("red", "train");
  RestartWith(persistence::Save(*cluster_));
  EXPECT_EQ(Place("red", "train"), "dear");
  EXPECT_EQ(Place("blue", "train"), "cheap");
}

TEST_F(ClusterLearningTest, TheHistoryOfATenantThatIsGoneGoes) {
  Run("blue", "train");
  const State state = persistence::Save(*cluster_);
  EXPECT_THAT(state, Contains(Key("program/4/blue/train")));
  tenants::Set(*cluster_, {TestTenant("red")});
  RestartWith(state);
  EXPECT_THAT(persistence::Save(*cluster_),
              Not(Contains(Key("program/4/blue/train"))));
}

TEST_F(ClusterLearningTest, FactorsAreSavedAtIntervalsAndAtTheStop) {
  const auto saved = [&] {
    return persistence::Save(*cluster_).at("factors/cuda");
  };
  Run("red", "train");
  Measure(absl::Seconds(2));
  const std::string first = saved();
  Measure(absl::Seconds(3));
  EXPECT_EQ(saved(), first);
  clock_.Advance(absl::Seconds(10));
  const std::string second = saved();
  EXPECT_NE(second, first);
  // Saves it when there is no other time to.
  Measure(absl::Seconds(4));
  EXPECT_EQ(saved(), second);
  coordinator::Stop(*cluster_);
  EXPECT_NE(saved(), second);
}

TEST_F(ClusterLearningTest, HistoryThatMakesRoomIsNotSaved) {
  for (size_t i = 0; i <= WorkTable::kMaxPrograms; ++i) {
    Run("red", absl::StrCat(i));
  }
  const State state = persistence::Save(*cluster_);
  EXPECT_THAT(state, Not(Contains(Key("program/3/red/0"))));
  EXPECT_THAT(state, Contains(Key("program/3/red/1")));
}

TEST_F(ClusterLearningTest, UnreadableStateIsLearnedAgain) {
  Run("red", "train");
  Run("red", "serve");
  State state = persistence::Save(*cluster_);
  state["program/3/red/train"] = "\xff";
  state["factors/cuda"] = "\xff";
  RestartWith(state);
  EXPECT_EQ(Place("red", "train"), "cheap");
  EXPECT_EQ(Place("red", "serve"), "dear");
  EXPECT_THAT(persistence::Save(*cluster_),
              Not(Contains(Key("program/3/red/train"))));
  Run("red", "train");
  EXPECT_EQ(Place("red", "train"), "dear");
}

}  // namespace
}  // namespace djinn::coordinator
