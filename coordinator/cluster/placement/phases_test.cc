// Tests what workers learn about the phases of their graphs, and what tenants
// are billed for each phase.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/proto_duration.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClusterPhasesTest : public ClusterTest {
 protected:
  ClusterPhasesTest() { Begin(); }
  void Begin() {
    Restart();
    worker_ = Join(w0_);
    session_ = Open("red");
    Grant(session_, 0, worker_, &w0_);
  }
  static SharedWork WorkOf(semantics::Phase phase,
                           std::vector<uint32_t> caches = {}) {
    scheduler::Work work;
    work.SetCacheSlots(std::move(caches));
    work.Add({semantics::OpClass::kMatmul, phase, {1000, 10, 2}, 3});
    return std::make_shared<const scheduler::Work>(work);
  }
  void Define(const std::string& fingerprint, semantics::Phase phase,
              std::vector<uint32_t> caches = {}) {
    sessions::NoteGraph(*cluster_, session_, fingerprint,
                        WorkOf(phase, std::move(caches)));
  }
  void Report(const std::string& fingerprint, uint64_t runs) {
    for (v1::HeldGraph& graph : *w0_.mutable_graphs()) {
      if (graph.fingerprint() != fingerprint) continue;
      graph.set_run_count(runs);
      return Report();
    }
    v1::HeldGraph* const graph = w0_.add_graphs();
    graph->set_fingerprint(fingerprint);
    graph->set_run_count(runs);
    Report();
  }
  void Report() { EXPECT_TRUE(workers::Report(*cluster_, worker_, w0_).ok()); }
  // Returns the phases that the worker is notified of at once.
  std::vector<v1::GraphPhase> Told() {
    const std::optional<v1::DesiredState> desired = Desired(worker_);
    if (!desired.has_value()) return {};
    return {desired->graph_phases().begin(), desired->graph_phases().end()};
  }
  void Use(absl::Duration decode, absl::Duration training,
           absl::Duration total) {
    v1::LeaseUse* const use = w0_.mutable_sessions(0)->mutable_lease_use();
    use->Clear();
    *use->mutable_device_time() = ToProtoDuration(total);
    const auto add = [&](v1::Phase phase, absl::Duration time) {
      v1::PhaseUse* const added = use->add_phases();
      added->set_phase(phase);
      *added->mutable_device_time() = ToProtoDuration(time);
    };
    add(v1::PHASE_LLM_DECODE, decode);
    add(v1::PHASE_TRAINING, training);
    Report();
  }
  static std::string Line(const std::string& phase, const std::string& value) {
    return "djinn_tenant_device_seconds_total{tenant=\"red\",phase=\"" + phase +
           "\"} " + value + "\n";
  }

  StreamId worker_;
  StreamId session_;
};

TEST_F(ClusterPhasesTest, AWorkerHearsOfAGraphThatBecomesKnown) {
  Report("g", 1);
  EXPECT_TRUE(Told().empty());
  Define("g", semantics::Phase::kLlmDecode);
  const auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].fingerprint(), "g");
  EXPECT_EQ(told[0].phase(), v1::PHASE_LLM_DECODE);
  // The phase is sent once.
  Report("g", 5);
  EXPECT_TRUE(Told().empty());
}

TEST_F(ClusterPhasesTest, AWorkerHearsWhichSlotsAreCaches) {
  Report("g", 1);
  EXPECT_TRUE(Told().empty());
  Define("g", semantics::Phase::kLlmDecode);
  EXPECT_EQ(Told().size(), 1u);
  // A later graph shows the phase.
  Define("g", semantics::Phase::kLlmDecode, {2, 5});
  const auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].phase(), v1::PHASE_LLM_DECODE);
  EXPECT_THAT(told[0].cache_slots(), ElementsAre(2, 5));
  Define("g", semantics::Phase::kLlmDecode, {2, 5});
  EXPECT_TRUE(Told().empty());
  // Cache slots are sent even when the phase is unknown.
  Report("h", 1);
  EXPECT_TRUE(Told().empty());
  Define("h", semantics::Phase::kUnspecified, {1});
  ASSERT_EQ(Told().size(), 1u);
}

TEST_F(ClusterPhasesTest, PhaseOfAGraphIsNotifiedPerTenant) {
  using semantics::Phase;
  Report("g", 1);
  EXPECT_TRUE(Told().empty());
  Define("g", Phase::kTraining, {3});
  auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0].tenants(), ElementsAre("red"));
  // For the other tenant only the graph itself counts, which shows nothing.
  const StreamId blue = Open("blue");
  sessions::NoteGraph(*cluster_, blue, "g", WorkOf(Phase::kUnspecified),
                      WorkOf(Phase::kUnspecified));
  EXPECT_TRUE(Told().empty());
  // Another program of that tenant shows more.
  sessions::NoteGraph(*cluster_, blue, "g", WorkOf(Phase::kLlmDecode, {1}),
                      WorkOf(Phase::kForward));
  told = Told();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].phase(), v1::PHASE_FORWARD);
  EXPECT_THAT(told[0].tenants(), ElementsAre());
  EXPECT_EQ(told[1].phase(), v1::PHASE_LLM_DECODE);
  EXPECT_THAT(told[1].cache_slots(), ElementsAre(1));
  EXPECT_THAT(told[1].tenants(), ElementsAre("blue"));
  EXPECT_EQ(told[2].phase(), v1::PHASE_TRAINING);
  EXPECT_THAT(told[2].cache_slots(), ElementsAre(3));
  EXPECT_THAT(told[2].tenants(), ElementsAre("red"));
  // Tenants that agree are named together.
  Define("g", Phase::kLlmDecode, {1});
  told = Told();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[1].tenants(), ElementsAre("blue", "red"));
}

TEST_F(ClusterPhasesTest, EveryWorkerThatHasTheGraphHearsOfItAtOnce) {
  // The worker has no lease of the session that defines the graph.
  v1::WorkerState elsewhere = TestWorker("w1");
  elsewhere.add_graphs()->set_fingerprint("g");
  const StreamId other = Join(elsewhere);
  const StreamId none = Join(TestWorker("w2"));
  EXPECT_EQ(Desired(other)->graph_phases_size(), 0);
  EXPECT_TRUE(Desired(none).has_value());
  Report("g", 1);
  EXPECT_TRUE(Told().empty());
  Define("g", semantics::Phase::kLlmDecode);
  EXPECT_EQ(Told().size(), 1u);
  const std::optional<v1::DesiredState> desired = Desired(other);
  ASSERT_TRUE(desired.has_value());
  ASSERT_EQ(desired->graph_phases_size(), 1);
  EXPECT_EQ(desired->graph_phases(0).fingerprint(), "g");
  EXPECT_FALSE(Desired(none).has_value());
}

TEST_F(ClusterPhasesTest, WorkerIsNotNotifiedOfADroppedGraph) {
  Report("g", 1);
  EXPECT_TRUE(Told().empty());
  w0_.clear_graphs();
  Report();
  Define("g", semantics::Phase::kLlmDecode);
  EXPECT_TRUE(Told().empty());
  // The same holds for a graph that it held before it could be notified.
  Define("h", semantics::Phase::kTraining);
  Report("h", 1);
  w0_.clear_graphs();
  Report();
  EXPECT_TRUE(Told().empty());
}

TEST_F(ClusterPhasesTest, AWorkerHearsOfAKnownGraphThatItReports) {
  Define("g", semantics::Phase::kTraining);
  EXPECT_TRUE(Told().empty());
  Report("g", 1);
  ASSERT_EQ(Told().size(), 1u);
}

TEST_F(ClusterPhasesTest, PhaseIsSentAgainForARebuiltPlan) {
  Define("g", semantics::Phase::kTraining);
  Report("g", 9);
  EXPECT_EQ(Told().size(), 1u);
  Report("g", 2);
  EXPECT_EQ(Told().size(), 1u);
  w0_.clear_graphs();
  Report();
  Report("g", 0);
  EXPECT_EQ(Told().size(), 1u);
}

TEST_F(ClusterPhasesTest, ANewStreamHearsOfAll) {
  Define("g", semantics::Phase::kTraining);
  Define("h", semantics::Phase::kLlmPrefill);
  Define("other", semantics::Phase::kLlmPrefill);
  Report("g", 1);
  Report("h", 1);
  EXPECT_EQ(Told().size(), 2u);
  worker_ = Join(w0_);
  EXPECT_EQ(Told().size(), 2u);
}

TEST_F(ClusterPhasesTest, ManyAreToldInSeveralMessages) {
  for (int i = 0; i < 1500; ++i) {
    const std::string name = "g" + std::to_string(i);
    Define(name, semantics::Phase::kForward);
    w0_.add_graphs()->set_fingerprint(name);
  }
  Report();
  EXPECT_EQ(Told().size(), 1024u);
  EXPECT_EQ(Told().size(), 476u);
  EXPECT_TRUE(Told().empty());
}

TEST_F(ClusterPhasesTest, TenantsAreBilledByPhase) {
  Use(absl::Seconds(2), absl::Seconds(3), absl::Seconds(5.5));
  Use(absl::Seconds(2), absl::Seconds(7), absl::Seconds(9.5));
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr(Line("llm_decode", "2")));
  EXPECT_THAT(metrics, HasSubstr(Line("training", "7")));
  EXPECT_THAT(metrics, HasSubstr(Line("unknown", "0.5")));
  const v1::LeaseUse used =
      views::GetTenant(*cluster_, "red")->credits().used();
  EXPECT_EQ(used.phases_size(), 3);
  EXPECT_EQ(PhaseTimes(used.phases()).total(),
            FromProtoDuration(used.device_time()));
}

TEST_F(ClusterPhasesTest, ARestartForgetsNoPhase) {
  Use(absl::Seconds(2), absl::Seconds(3), absl::Seconds(6));
  const auto state = persistence::Save(*cluster_);
  Restart();
  ASSERT_TRUE(persistence::Restore(*cluster_, state).ok());
  EXPECT_THAT(Metrics(), HasSubstr(Line("training", "3")));
  w0_.set_applied_revision(0);
  worker_ = Join(w0_);
  // The same use again bills nothing; more use bills only the growth.
  EXPECT_THAT(Metrics(), HasSubstr(Line("training", "3")));
  Use(absl::Seconds(2), absl::Seconds(4), absl::Seconds(7));
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr(Line("llm_decode", "2")));
  EXPECT_THAT(metrics, HasSubstr(Line("training", "4")));
  EXPECT_THAT(metrics, HasSubstr(Line("unknown", "1")));
}

}  // namespace
}  // namespace djinn::coordinator
