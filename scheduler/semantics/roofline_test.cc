#include "scheduler/semantics/roofline.h"

#include <cmath>

#include "gtest/gtest.h"

namespace djinn::semantics {
namespace {

constexpr DeviceSpeed kSpeed = {100, 10, 0.5};

TEST(RooflineTest, TheLongerOfComputingAndMoving) {
  EXPECT_DOUBLE_EQ(RooflineSeconds({1000, 10, 10}, kSpeed), 10.5);
  EXPECT_DOUBLE_EQ(RooflineSeconds({100, 100, 100}, kSpeed), 20.5);
}

TEST(CostFactorsTest, LearnsTheRatio) {
  CostFactors factors(0.5);
  EXPECT_DOUBLE_EQ(factors.Factor(OpClass::kMatmul, Phase::kLlmDecode, "w0"),
                   1);
  factors.Learn(OpClass::kMatmul, Phase::kLlmDecode, "w0", 1, 4);
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kLlmDecode, "w0"), 4,
              1e-9);
  // Twice as long and half as long weigh the same.
  factors.Learn(OpClass::kMatmul, Phase::kLlmDecode, "w0", 1, 1);
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kLlmDecode, "w0"), 2,
              1e-9);
  for (int i = 0; i < 50; ++i) {
    factors.Learn(OpClass::kMatmul, Phase::kLlmDecode, "w0", 2, 6);
  }
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kLlmDecode, "w0"), 3,
              1e-6);
}

TEST(CostFactorsTest, OtherPhasesServeOtherDevicesDoNot) {
  CostFactors factors;
  factors.Learn(OpClass::kMatmul, Phase::kLlmPrefill, "w0", 1, 3);
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kLlmDecode, "w0"), 3,
              1e-9);
  EXPECT_DOUBLE_EQ(factors.Factor(OpClass::kMatmul, Phase::kLlmPrefill, "w1"),
                   1);
  EXPECT_DOUBLE_EQ(factors.Factor(OpClass::kSoftmax, Phase::kLlmPrefill, "w0"),
                   1);
}

TEST(CostFactorsTest, OneMeasurementMovesItByTenAtMost) {
  CostFactors factors;
  factors.Learn(OpClass::kMatmul, Phase::kForward, "w0", 1, 1e9);
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kForward, "w0"), 10,
              1e-9);
}

TEST(CostFactorsTest, NonsenseIsIgnored) {
  CostFactors factors;
  for (const double measured : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    factors.Learn(OpClass::kMatmul, Phase::kForward, "w0", 1, measured);
  }
  factors.Learn(OpClass::kMatmul, Phase::kForward, "w0", 0, 1);
  EXPECT_DOUBLE_EQ(factors.Factor(OpClass::kMatmul, Phase::kForward, "w0"), 1);
}

}  // namespace
}  // namespace djinn::semantics
