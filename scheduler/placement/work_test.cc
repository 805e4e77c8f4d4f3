#include "scheduler/placement/work.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/analysis.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::scheduler {
namespace {

using semantics::OpClass;
using semantics::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(WorkTest, SumsAGraphByOperatorClass) {
  semantics::Builder builder;
  const srg::TensorView x = builder.Bound({4, 8});
  const srg::TensorView h = builder.Linear(x, 16);
  builder.Linear(builder.Call("relu", {h}, {4, 16}), 2);
  const Work work(builder.graph(), semantics::Analyze(builder.graph()));
  ASSERT_THAT(work.parts(), SizeIs(2));
  EXPECT_EQ(work.parts()[0].op_class, OpClass::kMatmul);
  EXPECT_EQ(work.parts()[0].calls, 2u);
  EXPECT_EQ(work.parts()[0].cost.flops, 2u * 4 * 16 * 8 + 2u * 4 * 2 * 16);
  EXPECT_EQ(work.parts()[1].op_class, OpClass::kActivation);
}

TEST(WorkTest, ListsTheCacheSlotsOfAGraph) {
  semantics::Builder builder;
  builder.Linear(builder.Bound({4, 8}), 16);
  semantics::Meaning meaning = semantics::Analyze(builder.graph());
  EXPECT_THAT(Work(builder.graph(), meaning).cache_slots(), IsEmpty());
  ASSERT_GT(meaning.slots.size(), 2u);
  meaning.slots[0].residency = semantics::Residency::kStatefulKvCache;
  meaning.slots[2].residency = semantics::Residency::kStatefulKvCache;
  const Work work(builder.graph(), meaning);
  EXPECT_THAT(work.cache_slots(), ElementsAre(0, 2));
  Work sum;
  sum.Add(work);
  EXPECT_THAT(sum.cache_slots(), IsEmpty());
}

TEST(WorkTest, WorkBetweenStepsHasNoPhase) {
  Work work;
  work.Add({OpClass::kReduction, Phase::kLlmPrefill, {100, 0, 0}, 1});
  work.Add({OpClass::kLayout, Phase::kLlmPrefill, {0, 10, 0}, 1});
  EXPECT_EQ(work.phase(), Phase::kUnspecified);
  work.Add({OpClass::kMatmul, Phase::kUnspecified, {1, 0, 0}, 1});
  EXPECT_EQ(work.phase(), Phase::kLlmPrefill);
}

TEST(WorkTest, ItsPhaseIsThatOfMostOfIt) {
  Work work;
  EXPECT_EQ(work.phase(), Phase::kUnspecified);
  work.Add({OpClass::kMatmul, Phase::kLlmPrefill, {100, 0, 0}, 1});
  work.Add({OpClass::kMatmul, Phase::kLlmDecode, {1, 1000, 0}, 1});
  Work both;
  both.Add(work);
  both.Add(work);
  ASSERT_THAT(both.parts(), SizeIs(2));
  EXPECT_EQ(both.parts()[0].cost.flops, 200u);
  EXPECT_EQ(PhaseName(work.phase()), "llm_decode");
  both.Add({OpClass::kMatmul, Phase::kUnspecified, {0, 1'000'000, 0}, 1});
  // 1000 bytes take longer than 100 operations.
  EXPECT_EQ(both.phase(), Phase::kLlmDecode);
}

TEST(WorkTest, TimeIsTheRooflinesTimesWhatWasLearned) {
  Work work;
  work.Add({OpClass::kMatmul, Phase::kForward, {1000, 10, 10}, 3});
  work.Add({OpClass::kLayout, Phase::kForward, {0, 40, 60}, 1});
  const semantics::DeviceSpeed speed = {100, 10, 0.5};
  EXPECT_DOUBLE_EQ(RooflineSeconds(work, speed), 10 + 3 * 0.5 + 10 + 0.5);
  semantics::CostFactors factors;
  factors.Learn(OpClass::kLayout, Phase::kForward, "cpu", 1, 2);
  EXPECT_DOUBLE_EQ(PredictSeconds(work, speed, "cpu", factors),
                   10 + 3 * 0.5 + 2 * (10 + 0.5));
  EXPECT_EQ(RooflineSeconds(work, {}), 0);
}

}  // namespace
}  // namespace djinn::scheduler
