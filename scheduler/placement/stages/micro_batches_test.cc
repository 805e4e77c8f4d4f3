#include "scheduler/placement/stages/micro_batches.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/placement/stages/stages.h"
#include "scheduler/semantics/analysis/analysis.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::scheduler {
namespace {

using semantics::Builder;
using ::testing::HasSubstr;

constexpr double kFlops = 1e9;
constexpr uint64_t kLayerBytes = 64 * 64 * 4;

// A worker so fast that only operations count, unless a test says otherwise.
StageWorker Worker(double flops = kFlops, double link = 1e12) {
  return {"cpu", {flops, 1e15, 0}, link};
}

class MicroBatchesTest : public ::testing::Test {
 protected:
  void Layers(int count, int64_t rows = 256) {
    builder_ = Builder();
    srg::TensorView x = builder_.Bound({rows, 64});
    for (int i = 0; i < count; ++i) x = builder_.Linear(x, 64);
    output_ = x.slot;
  }

  MicroBatches Plan(const std::vector<StageWorker>& workers) {
    const std::vector<uint32_t> given = {0};
    const std::vector<uint32_t> outputs = {output_};
    const auto cut = semantics::FindBatch(builder_.graph(), given, outputs);
    EXPECT_TRUE(cut.ok()) << cut.status();
    if (!cut.ok()) return {};
    const semantics::Meaning meaning = semantics::Analyze(builder_.graph());
    return PlanMicroBatches(
        {builder_.graph(), meaning, *cut, given, outputs, workers, factors_,
         PlanStages(builder_.graph(), meaning, workers, factors_)});
  }

  Builder builder_;
  uint32_t output_ = 0;
  semantics::CostFactors factors_;
};

TEST_F(MicroBatchesTest, RowsFollowOneAnotherThroughTheStages) {
  Layers(2);
  const MicroBatches plan = Plan({Worker(), Worker()});
  ASSERT_EQ(plan.stages.stages.size(), 2u);
  // k micro-batches take the time of k + 1 for one stage. With 16 that is 17
  // times 16 rows. The least k within 5 % of it is 13, with 20 rows at most.
  ASSERT_EQ(plan.parts.size(), 13u) << plan.problem;
  int64_t rows = 0;
  for (const MicroBatches::Part& part : plan.parts) {
    EXPECT_GE(part.rows, 19);
    EXPECT_LE(part.rows, 20);
    rows += part.rows;
  }
  EXPECT_EQ(rows, 256);
  EXPECT_NEAR(plan.seconds / plan.whole_seconds, 14.0 * 20 / (2 * 256), 0.01);
  EXPECT_NEAR(plan.alone_seconds, plan.whole_seconds,
              0.01 * plan.whole_seconds);
  EXPECT_NEAR(plan.parts[0].compute_seconds, plan.whole_seconds * 20 / 256,
              0.01 * plan.whole_seconds);
}

TEST_F(MicroBatchesTest, RowsThatDoNotDivideAreAllThere) {
  Layers(2, /*rows=*/7);
  const MicroBatches plan = Plan({Worker(), Worker()});
  ASSERT_EQ(plan.parts.size(), 7u) << plan.problem;
  EXPECT_EQ(plan.parts[0].rows, 1);
  Layers(2, /*rows=*/37);
  const MicroBatches more = Plan({Worker(), Worker()});
  int64_t rows = 0;
  for (const MicroBatches::Part& part : more.parts) {
    EXPECT_GE(part.rows, more.parts.back().rows);
    EXPECT_LE(part.rows, more.parts.back().rows + 1);
    rows += part.rows;
  }
  EXPECT_EQ(rows, 37);
}

TEST_F(MicroBatchesTest, CostPerCallMakesMicroBatchesFewer) {
  Layers(2);
  // A call takes as long as 32 of its rows.
  StageWorker worker = Worker();
  worker.speed.seconds_per_call = 32 * 2 * 64 * 64 / kFlops;
  const MicroBatches plan = Plan({worker, worker});
  ASSERT_GE(plan.parts.size(), 2u) << plan.problem;
  EXPECT_LT(plan.parts.size(), 6u);
  // A call takes as long as all 256 rows, so that nothing is gained.
  worker.speed.seconds_per_call *= 8;
  const MicroBatches none = Plan({worker, worker});
  EXPECT_TRUE(none.parts.empty());
  EXPECT_THAT(none.problem, HasSubstr("gains too little over"));
}

TEST_F(MicroBatchesTest, NoWorkerNeedsRoomForAllOfIt) {
  Layers(3);
  std::vector<StageWorker> workers = {Worker(), Worker(), Worker()};
  for (StageWorker& worker : workers) worker.available_bytes = kLayerBytes;
  const MicroBatches plan = Plan(workers);
  ASSERT_GE(plan.parts.size(), 2u) << plan.problem;
  EXPECT_EQ(plan.stages.stages.size(), 3u);
  EXPECT_EQ(plan.alone_seconds, 0);
  EXPECT_LT(plan.seconds, 0.5 * plan.whole_seconds);
  workers.pop_back();
  EXPECT_THAT(Plan(workers).problem, HasSubstr("no room"));
}

TEST_F(MicroBatchesTest, ASlowLinkLeavesItWhole) {
  Layers(2);
  const MicroBatches plan = Plan({Worker(kFlops, 1e6), Worker(kFlops, 1e6)});
  EXPECT_TRUE(plan.parts.empty());
  EXPECT_EQ(plan.problem, "stages do not pay");
}

TEST_F(MicroBatchesTest, GraphThatReturnsToAnEarlierStageIsNotSplit) {
  // The first weight is used again at the end.
  const srg::TensorView x = builder_.Bound({256, 64});
  const srg::TensorView tied = builder_.Bound({64, 64});
  srg::TensorView h =
      builder_.Call("linear", {x, tied, std::monostate()}, {256, 64});
  for (int i = 0; i < 3; ++i) h = builder_.Linear(h, 64);
  output_ =
      builder_.Call("linear", {h, tied, std::monostate()}, {256, 64}).slot;
  const MicroBatches plan = Plan({Worker(), Worker()});
  EXPECT_TRUE(plan.parts.empty());
  EXPECT_THAT(plan.problem, HasSubstr("comes after stage 1"));
}

}  // namespace
}  // namespace djinn::scheduler
