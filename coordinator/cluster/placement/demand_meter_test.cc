// Tests that workers which may continue to serve without the coordinator are
// kept.
#include "coordinator/cluster/placement/demand_meter.h"

#include <map>
#include <memory>
#include <string>

#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;

class ServesOnTest : public ClusterTest {
 protected:
  ServesOnTest() {
    worker_ = Join(w0_);
    session_ = Open("red");
    auto work = std::make_shared<scheduler::Work>();
    work->Add({semantics::OpClass::kMatmul,
               semantics::Phase::kLlmDecode,
               {1'000'000'000, 0, 0},
               1});
    sessions::NoteGraph(*cluster_, session_, "decode", std::move(work));
    Grant(session_, 0, worker_, &w0_);
  }
  void Lose() {
    clock_.Advance(config_.worker_timeout + absl::Seconds(1));
    coordinator::Tick(*cluster_);
    EXPECT_EQ(views::GetWorker(*cluster_, "w0")->state(), v1::WorkerInfo::LOST);
  }
  // Returns -1 when the demand is unknown.
  int Kept() {
    const absl::StatusOr<ClusterDemand> demand = demand::Demand(*cluster_);
    return demand.ok() ? demand->all_kept_workers : -1;
  }
  void RestartWithState() {
    const std::map<std::string, std::string> state =
        persistence::Save(*cluster_);
    Restart();
    EXPECT_EQ(persistence::Restore(*cluster_, state), absl::OkStatus());
    w0_.set_applied_revision(0);
    clock_.Advance(config_.worker_timeout);
  }

  const absl::Duration life_ =
      config_.lease_valid_for + config_.lease_grace_period;
  StreamId worker_, session_;
};

TEST_F(ServesOnTest, OneThatIsLostIsKeptWhileItMayServe) {
  Lose();
  const ClusterDemand demand = *demand::Demand(*cluster_);
  EXPECT_EQ(demand.all_kept_workers, 1);
  EXPECT_EQ(
      demand.kept_workers[static_cast<size_t>(semantics::Phase::kLlmDecode)],
      1);
  EXPECT_EQ(
      demand.kept_workers[static_cast<size_t>(semantics::Phase::kTraining)], 0);
  EXPECT_THAT(Metrics(),
              HasSubstr("desired_workers{phase=\"llm_decode\"} 1\n"));
  clock_.Advance(life_ - absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Kept(), 1);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, HoweverLongThatIs) {
  config_.lease_grace_period = absl::Hours(3);
  Lose();
  clock_.Advance(absl::Hours(2));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Kept(), 1);
  clock_.Advance(absl::Hours(2));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::Workers(*cluster_, {}).items.size(), 0u);
}

TEST_F(ServesOnTest, OneWithoutLeasesHasNothingToServe) {
  sessions::Close(*cluster_, session_);
  Execute(worker_, &w0_);
  Lose();
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, OneThatCameBackIsKeptUntilItHasForgotten) {
  Lose();
  worker_ = Join(w0_);
  EXPECT_EQ(Kept(), 0);
  // The worker is lost before it is notified of anything.
  Lose();
  EXPECT_EQ(Kept(), 1);
  worker_ = Join(w0_);
  Execute(worker_, &w0_);
  Lose();
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, AnotherProcessOfItHasNothing) {
  Lose();
  Join(TestWorker("w0", 2));
  Lose();
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, WorkerAwaitedAfterARestartIsKept) {
  RestartWithState();
  EXPECT_EQ(Kept(), 1);
  // Its client is also cut off from the coordinator.
  clock_.Advance(config_.session_timeout);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Kept(), 1);
  // The worker only has sessions that it is to drop.
  worker_ = Join(w0_);
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, ReturnedWorkerIsKeptForItsLeases) {
  RestartWithState();
  worker_ = Join(w0_);
  EXPECT_EQ(Kept(), 1);
  sessions::Close(*cluster_, Open("red", session_.owner));
  EXPECT_EQ(Kept(), 0);
}

TEST_F(ServesOnTest, AbsentWorkerIsAwaitedForALimitedTime) {
  RestartWithState();
  clock_.Advance(life_ - config_.worker_timeout - absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Kept(), 1);
  clock_.Advance(absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Kept(), 0);
}

}  // namespace
}  // namespace djinn::coordinator
