#include "scheduler/placement/phase_weights.h"

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using semantics::OpClass;
using semantics::Phase;

constexpr semantics::DeviceSpeed kArithmetic = {1e13, 1e11, 0};
constexpr semantics::DeviceSpeed kMemory = {1e12, 1e12, 0};

// Work of a prompt, bound by its products, and a token, bound by reading
// weights.
Work PromptAndToken() {
  Work work;
  work.Add(
      {OpClass::kMatmul, Phase::kLlmPrefill, {1'000'000'000'000, 0, 0}, 10});
  work.Add({OpClass::kMatmul, Phase::kLlmDecode, {0, 10'000'000'000, 0}, 10});
  return work;
}

PhaseSeconds Took(double prefill, double decode) {
  PhaseSeconds seconds = {};
  seconds[static_cast<size_t>(Phase::kLlmPrefill)] = prefill;
  seconds[static_cast<size_t>(Phase::kLlmDecode)] = decode;
  return seconds;
}

double Of(const Work& work, Phase phase, const semantics::DeviceSpeed& speed) {
  double seconds = 0;
  for (const Work::Part& part : work.parts()) {
    if (part.phase == phase) seconds += RooflineSeconds(part, speed);
  }
  return seconds;
}

TEST(PhaseWeightsTest, WhereItSpendsItsTimeDecidesWhichDeviceIsBetter) {
  const semantics::CostFactors factors;
  const Work once = PromptAndToken();
  EXPECT_LT(RooflineSeconds(once, kArithmetic), RooflineSeconds(once, kMemory));
  // 100 tokens of 0.1 s each.
  const Work weighed =
      WeighByTime(once, Took(0.1, 10), kArithmetic, "cuda", factors);
  EXPECT_GT(RooflineSeconds(weighed, kArithmetic),
            5 * RooflineSeconds(weighed, kMemory));
  EXPECT_EQ(weighed.phase(), Phase::kLlmDecode);
  // The total is the same, and each phase has its measured part.
  EXPECT_NEAR(RooflineSeconds(weighed, kArithmetic),
              RooflineSeconds(once, kArithmetic), 1e-6);
  EXPECT_NEAR(Of(weighed, Phase::kLlmDecode, kArithmetic) /
                  Of(weighed, Phase::kLlmPrefill, kArithmetic),
              100, 1e-3);
}

TEST(PhaseWeightsTest, LearnedFactorsOfTheDeviceCount) {
  semantics::CostFactors factors;
  for (int i = 0; i < 50; ++i) {
    factors.Learn(OpClass::kMatmul, Phase::kLlmDecode, "cuda", 1, 4);
  }
  // A token takes 0.4 s, so these were 25, not 100.
  const Work weighed = WeighByTime(PromptAndToken(), Took(0.1, 10), kArithmetic,
                                   "cuda", factors);
  EXPECT_NEAR(Of(weighed, Phase::kLlmDecode, kArithmetic) /
                  Of(weighed, Phase::kLlmPrefill, kArithmetic),
              25, 0.1);
}

TEST(PhaseWeightsTest, APhaseTookOneRunAtLeast) {
  const semantics::CostFactors factors;
  const Work once = PromptAndToken();
  // The prompt was over before its phase was known.
  const Work weighed =
      WeighByTime(once, Took(0, 10), kArithmetic, "cuda", factors);
  EXPECT_NEAR(Of(weighed, Phase::kLlmDecode, kArithmetic) /
                  Of(weighed, Phase::kLlmPrefill, kArithmetic),
              100, 1e-3);
}

TEST(PhaseWeightsTest, UnknownTimesChangeNothing) {
  const semantics::CostFactors factors;
  const Work once = PromptAndToken();
  for (const Work& same :
       {WeighByTime(once, Took(0, 0), kArithmetic, "cuda", factors),
        WeighByTime(once, Took(1, 10), {}, "cuda", factors),
        WeighByTime(Work(), Took(1, 10), kArithmetic, "cuda", factors)}) {
    EXPECT_TRUE(same.empty() || same.parts().size() == 2);
    EXPECT_EQ(RooflineSeconds(same, kMemory),
              same.empty() ? 0 : RooflineSeconds(once, kMemory));
  }
  // Work without a phase keeps its weight beside other work.
  Work mixed = once;
  mixed.Add(
      {OpClass::kOther, Phase::kUnspecified, {1'000'000'000'000, 0, 0}, 1});
  PhaseSeconds took = Took(0.1, 0.7);
  took[0] = 100;
  const Work weighed = WeighByTime(mixed, took, kArithmetic, "cuda", factors);
  EXPECT_NEAR(Of(weighed, Phase::kUnspecified, kArithmetic),
              Of(weighed, Phase::kLlmPrefill, kArithmetic), 1e-6);
}

}  // namespace
}  // namespace djinn::scheduler
