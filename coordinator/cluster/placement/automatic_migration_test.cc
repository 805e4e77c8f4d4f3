// Tests which sessions the coordinator itself migrates.
#include <memory>
#include <string>

#include "coordinator/admin/explain.h"
#include "coordinator/admin/operations.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/migration_fixture.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/cluster_limits.h"
#include "gmock/gmock.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using testing::ElementsAre;

// Workers with a speed, each kept for a phase or for none.
class AutomaticMigrationTest : public ClusterMigrationTest {
 protected:
  void Begin(double here_flops, double there_flops, v1::Phase here = {},
             v1::Phase there = {}) {
    config_.automatic_migration = true;
    Restart();
    w0_ = Fast("w0", here_flops, here);
    w1_ = Fast("w1", there_flops, there);
    ClusterMigrationTest::Begin();
  }
  static v1::WorkerState Fast(const std::string& id, double flops,
                              v1::Phase phase) {
    v1::WorkerState state = TestWorker(id);
    state.mutable_speed()->set_flops_per_second(flops);
    state.mutable_speed()->set_bytes_per_second(1e12);
    if (phase != v1::PHASE_UNSPECIFIED) state.add_phases(phase);
    return state;
  }
  bool IsAsked() {
    Execute(there_, &w1_);
    return Next(session_).has_value();
  }
};

TEST_F(AutomaticMigrationTest, APhaseGoesToTheWorkerThatIsKeptForIt) {
  Begin(1e12, 1e12, v1::PHASE_LLM_PREFILL, v1::PHASE_LLM_DECODE);
  sessions::NoteGraph(*cluster_, session_, "weights",
                      WorkOf(semantics::Phase::kForward));
  sessions::NoteGraph(*cluster_, session_, "prompt",
                      WorkOf(semantics::Phase::kLlmPrefill));
  EXPECT_FALSE(IsAsked());
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  Execute(there_, &w1_);
  const v1::MigrationRequest request = TakeRequest();
  EXPECT_EQ(Last().reason(), "phase");
  EXPECT_TRUE(Last().has_terms());
  EXPECT_EQ(Last().terms().state_bytes(), 100u);
  Note(OutcomeOf(request));
  // More work of the same phase does not change it.
  sessions::NoteGraph(*cluster_, session_, "token 2",
                      WorkOf(semantics::Phase::kLlmDecode));
  // Work between the steps, which was found beside a prompt, does not either.
  auto between = std::make_shared<scheduler::Work>();
  between->Add({semantics::OpClass::kReduction,
                semantics::Phase::kLlmPrefill,
                {100, 0, 0},
                1});
  sessions::NoteGraph(*cluster_, session_, "next token", std::move(between));
  EXPECT_FALSE(IsAsked());
  EXPECT_THAT(Workers(), ElementsAre("w1"));
  // The next prompt, defined again, moves it back.
  Execute(here_, &w0_);
  sessions::NoteGraph(*cluster_, session_, "prompt",
                      WorkOf(semantics::Phase::kLlmPrefill));
  Execute(here_, &w0_);
  EXPECT_EQ(TakeRequest().to().lease().worker_id(), "w0");
}

TEST_F(AutomaticMigrationTest, APhaseStaysWhereItIsDoneAsSoon) {
  Begin(1e12, 1e12);
  sessions::NoteGraph(*cluster_, session_, "prompt",
                      WorkOf(semantics::Phase::kLlmPrefill));
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  EXPECT_FALSE(IsAsked());
}

TEST_F(AutomaticMigrationTest, APhaseGoesWhereItIsDoneSooner) {
  Begin(1e11, 1e12);
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  Execute(there_, &w1_);
  TakeRequest();
  // The work takes a tenth of the time there, and little must be moved.
  EXPECT_DOUBLE_EQ(Last().terms().stay_seconds(), 60);
  EXPECT_LT(Last().terms().go_seconds(), 10);
}

TEST_F(AutomaticMigrationTest, TheLinkThatWasMeasuredDecides) {
  Begin(1e11, 1e12);
  const auto measure = [&](const char* from, uint64_t rate) {
    w1_.clear_links();
    w1_.add_links()->set_worker_id(from);
    w1_.mutable_links(0)->set_bytes_per_second(rate);
    ASSERT_EQ(workers::Report(*cluster_, there_, w1_), absl::OkStatus());
  };
  // Moving the hundred bytes that it holds would take longer than the migration
  // gains, although the link is declared fast.
  w1_.set_link_bytes_per_second(1'000'000'000);
  measure("w0", 1);
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  EXPECT_FALSE(IsAsked());
  // A measurement from another worker says nothing about this link.
  measure("w7", 1);
  sessions::NoteGraph(*cluster_, session_, "prompt",
                      WorkOf(semantics::Phase::kLlmPrefill));
  Execute(there_, &w1_);
  TakeRequest();
  EXPECT_DOUBLE_EQ(Last().terms().transfer_seconds(), 100 / 1e9);
}

TEST_F(AutomaticMigrationTest, TheLinkThatDecidedIsExplained) {
  Begin(1e11, 1e12);
  w1_.set_link_bytes_per_second(1'000'000'000);
  w1_.add_links()->set_worker_id("w0");
  w1_.mutable_links(0)->set_bytes_per_second(50);
  ASSERT_EQ(workers::Report(*cluster_, there_, w1_), absl::OkStatus());
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  Execute(there_, &w1_);
  const v1::MigrationRequest request = TakeRequest();
  EXPECT_DOUBLE_EQ(Last().terms().transfer_seconds(), 2);
  Note(OutcomeOf(request));
  const auto explained = explain::ExplainSession(*cluster_, session_.owner);
  ASSERT_TRUE(explained.ok()) << explained.status();
  ASSERT_EQ(explained->devices_size(), 1);
  const v1::PlacementCandidate& there =
      explained->devices(0).decision().candidates(0);
  EXPECT_EQ(there.worker_id(), "w1");
  EXPECT_TRUE(there.terms().link_measured());
  EXPECT_EQ(there.terms().link_bytes_per_second(), 50);
  EXPECT_DOUBLE_EQ(there.terms().transfer_seconds(), 2);
}

TEST_F(AutomaticMigrationTest, ABetterWorkerIsFoundInTime) {
  Begin(1e11, 1e11);
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  EXPECT_FALSE(IsAsked());
  // A better worker joins; no device migrates before it has stayed for a
  // minute.
  v1::WorkerState better = Fast("w2", 1e12, {});
  const StreamId third = Join(better);
  const auto pass = [&](absl::Duration time) {
    clock_.Advance(time);
    Execute(here_, &w0_);
    Execute(there_, &w1_);
    Execute(third, &better);
    coordinator::Tick(*cluster_);
    Execute(third, &better);
  };
  pass(absl::Seconds(6));
  EXPECT_FALSE(Next(session_).has_value());
  for (int i = 0; i < 10; ++i) pass(absl::Seconds(6));
  EXPECT_EQ(TakeRequest().to().lease().worker_id(), "w2");
  EXPECT_EQ(Last().reason(), "policy");
}

TEST_F(AutomaticMigrationTest, UncordonMovesNoLease) {
  Begin(1e11, 1e11);
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  clock_.Advance(absl::Minutes(2));
  Execute(here_, &w0_);
  w1_ = Fast("w1", 1e12, {});
  Execute(there_, &w1_);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", true, false).ok());
  ASSERT_TRUE(operations::Cordon(*cluster_, "w1", false, false).ok());
  EXPECT_FALSE(IsAsked());
  // The device migrates at its own time.
  coordinator::Tick(*cluster_);
  EXPECT_TRUE(IsAsked());
  EXPECT_EQ(Last().reason(), "policy");
}

TEST_F(AutomaticMigrationTest, NothingGoesUnlessItIsWanted) {
  Begin(1e11, 1e12);
  config_.automatic_migration = false;
  sessions::NoteGraph(*cluster_, session_, "token",
                      WorkOf(semantics::Phase::kLlmDecode));
  EXPECT_FALSE(IsAsked());
}

}  // namespace
}  // namespace djinn::coordinator
