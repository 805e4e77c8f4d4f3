#include "scheduler/placement/stages/batch_split.h"

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kFlops = 1e9;

// A worker so fast that only operations count, unless a test says otherwise.
StageWorker Worker(double flops = kFlops, double link = 1e12) {
  return {"cpu", {flops, 1e15, 0}, link};
}

class BatchSplitTest : public ::testing::Test {
 protected:
  // Builds x times a matrix, which cannot be cut into stages.
  void OneLayer(int64_t rows = 100) {
    output_ = builder_.Linear(builder_.Bound({rows, 64}), 32).slot;
  }

  BatchSplit Split(const std::vector<StageWorker>& workers,
                   std::vector<uint32_t> given = {0}) {
    const std::vector<uint32_t> outputs = {output_};
    const auto cut = semantics::FindBatch(builder_.graph(), given, outputs);
    EXPECT_TRUE(cut.ok()) << cut.status();
    if (!cut.ok()) return {};
    const semantics::Meaning meaning = semantics::Analyze(builder_.graph());
    return SplitBatch(
        {builder_.graph(), meaning, *cut, given, outputs, workers, factors_,
         PlanStages(builder_.graph(), meaning, workers, factors_)});
  }

  static std::vector<int64_t> Rows(const BatchSplit& split) {
    std::vector<int64_t> rows;
    for (const BatchSplit::Part& part : split.parts) rows.push_back(part.rows);
    return rows;
  }

  Builder builder_;
  uint32_t output_ = 0;
  semantics::CostFactors factors_;
};

TEST_F(BatchSplitTest, EqualWorkersGetEqualParts) {
  OneLayer();
  const BatchSplit split = Split({Worker(), Worker()});
  EXPECT_EQ(split.problem, "");
  EXPECT_THAT(Rows(split), ElementsAre(50, 50));
  EXPECT_EQ(split.weight_bytes, 64u * 32 * 4);
  // The first worker has the inputs of a run, and keeps its outputs.
  EXPECT_EQ(split.parts[0].input_bytes, 0u);
  EXPECT_EQ(split.parts[0].output_bytes, 0u);
  EXPECT_EQ(split.parts[1].input_bytes, 50u * 64 * 4);
  EXPECT_EQ(split.parts[1].output_bytes, 50u * 32 * 4);
  EXPECT_NEAR(split.alone_seconds / split.slowest_seconds(), 2, 0.01);
  EXPECT_EQ(split.stage_seconds, 0);
}

TEST_F(BatchSplitTest, AFasterWorkerGetsMoreRows) {
  OneLayer();
  EXPECT_THAT(Rows(Split({Worker(), Worker(3 * kFlops)})), ElementsAre(25, 75));
  EXPECT_THAT(Rows(Split({Worker(), Worker(2 * kFlops), Worker(kFlops)})),
              ElementsAre(25, 50, 25));
}

TEST_F(BatchSplitTest, RowsThatDoNotDivideAreAllShared) {
  OneLayer(/*rows=*/10);
  const BatchSplit split = Split({Worker(), Worker(), Worker()});
  ASSERT_EQ(split.parts.size(), 3u) << split.problem;
  int64_t sum = 0;
  for (const int64_t rows : Rows(split)) {
    EXPECT_GE(rows, 2);
    EXPECT_LE(rows, 4);
    sum += rows;
  }
  EXPECT_EQ(sum, 10);
}

TEST_F(BatchSplitTest, SlowLinkCostsRows) {
  OneLayer();
  // A row takes 4,096 operations and 384 bytes.
  const BatchSplit split = Split({Worker(kFlops, 1e8), Worker(kFlops, 1e8)});
  ASSERT_EQ(split.parts.size(), 2u) << split.problem;
  EXPECT_GT(split.parts[0].rows, 55);
  EXPECT_NEAR(split.parts[1].transfer_seconds,
              static_cast<double>(split.parts[1].rows) * 384 / 1e8, 1e-9);
  EXPECT_NEAR(split.parts[0].seconds() / split.parts[1].seconds(), 1, 0.05);
}

TEST_F(BatchSplitTest, ASlowLinkLeavesItWhole) {
  OneLayer();
  const BatchSplit split = Split({Worker(kFlops, 1e6), Worker(kFlops, 1e6)});
  EXPECT_TRUE(split.parts.empty());
  EXPECT_THAT(split.problem, HasSubstr("on one worker alone"));
  EXPECT_GT(split.alone_seconds, 0);
}

TEST_F(BatchSplitTest, AWorkerThatIsMuchFasterAloneLeavesItWhole) {
  OneLayer();
  const BatchSplit split = Split({Worker(), Worker(20 * kFlops)});
  EXPECT_TRUE(split.parts.empty());
  EXPECT_THAT(split.problem, HasSubstr("gains too little over"));
}

TEST_F(BatchSplitTest, ReadingTheWeightsTwiceGainsNothing) {
  // A decoder's step: reading the weights dominates.
  output_ = builder_.Linear(builder_.Bound({4, 4096}), 4096).slot;
  const StageWorker worker = {"cpu", {1e13, 1e10, 0}, 1e12};
  const BatchSplit split = Split({worker, worker});
  EXPECT_TRUE(split.parts.empty());
  EXPECT_THAT(split.problem, HasSubstr("on one worker alone"));
}

TEST_F(BatchSplitTest, StagesThatTakeAsLongAreLeftTheirWork) {
  srg::TensorView x = builder_.Bound({256, 64});
  for (int i = 0; i < 2; ++i) x = builder_.Linear(x, 64);
  output_ = x.slot;
  const BatchSplit split = Split({Worker(), Worker()});
  // One run ends earlier nevertheless.
  EXPECT_THAT(Rows(split), ElementsAre(128, 128));
  EXPECT_GT(split.stage_seconds, 0);
  EXPECT_THAT(split.problem, HasSubstr("a run in stages"));
}

TEST_F(BatchSplitTest, UnequalLayersAreBetterSharedByRows) {
  srg::TensorView x = builder_.Bound({256, 64});
  for (int i = 0; i < 3; ++i) x = builder_.Linear(x, 64);
  output_ = x.slot;
  const BatchSplit split = Split({Worker(), Worker()});
  EXPECT_THAT(Rows(split), ElementsAre(128, 128)) << split.problem;
  EXPECT_NEAR(split.stage_seconds / split.alone_seconds, 2.0 / 3, 0.01);
}

TEST_F(BatchSplitTest, WorkerWithoutRoomForTheWeightsGetsNoPart) {
  OneLayer();
  std::vector<StageWorker> workers = {Worker(), Worker(), Worker()};
  workers[1].available_bytes = 64 * 32 * 4 - 1;
  const BatchSplit split = Split(workers);
  ASSERT_EQ(split.parts.size(), 2u) << split.problem;
  EXPECT_EQ(split.parts[1].worker, 2u);
  workers.pop_back();
  EXPECT_EQ(Split(workers).problem,
            "no other worker has room for its 8192 bytes of weights");
}

TEST_F(BatchSplitTest, InputWithoutRowsGoesWholeToEveryPart) {
  const srg::TensorView x = builder_.Bound({100, 64});
  const srg::TensorView scale = builder_.Bound({64});
  output_ =
      builder_.Linear(builder_.Call("mul", {x, scale}, {100, 64}), 32).slot;
  const BatchSplit split = Split({Worker(), Worker()}, {0, 1});
  ASSERT_EQ(split.parts.size(), 2u) << split.problem;
  EXPECT_EQ(split.weight_bytes, 64u * 32 * 4);
  EXPECT_EQ(split.parts[1].input_bytes,
            static_cast<uint64_t>(split.parts[1].rows + 1) * 64 * 4);
}

TEST_F(BatchSplitTest, WorkersThatSayNothingCountAsEqual) {
  output_ = builder_.Linear(builder_.Bound({10'000, 2048}), 2048).slot;
  const BatchSplit split = Split({StageWorker(), StageWorker()});
  ASSERT_EQ(split.parts.size(), 2u) << split.problem;
  EXPECT_GT(split.parts[0].rows, split.parts[1].rows);
}

}  // namespace
}  // namespace djinn::scheduler
