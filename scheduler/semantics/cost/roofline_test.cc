#include "scheduler/semantics/cost/roofline.h"

#include <cmath>
#include <string>

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

TEST(CostFactorsTest, StaysWithinReason) {
  CostFactors factors(1);
  for (int i = 0; i < 50; ++i) {
    factors.Learn(OpClass::kMatmul, Phase::kForward, "w0", 1, 1e300);
    factors.Learn(OpClass::kMatmul, Phase::kForward, "w1", 1e300, 1);
  }
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kForward, "w0"), 1e6, 1);
  EXPECT_NEAR(factors.Factor(OpClass::kMatmul, Phase::kForward, "w1"), 1e-6,
              1e-9);
}

TEST(CostFactorsTest, TheDeviceLearnedOfLeastRecentlyMakesRoom) {
  CostFactors factors;
  const auto learn = [&](size_t device) {
    factors.Learn(OpClass::kMatmul, Phase::kForward, std::to_string(device), 1,
                  3);
  };
  for (size_t i = 0; i < CostFactors::kMaxDevices; ++i) learn(i);
  learn(0);
  learn(CostFactors::kMaxDevices);
  const auto factor = [&](size_t device) {
    return factors.Factor(OpClass::kMatmul, Phase::kForward,
                          std::to_string(device));
  };
  EXPECT_NEAR(factor(0), 3, 1e-9);
  EXPECT_EQ(factor(1), 1);
  EXPECT_NEAR(factor(CostFactors::kMaxDevices), 3, 1e-9);
}

TEST(CostFactorsTest, GoesOnFromWhatWasLearnedBefore) {
  CostFactors factors;
  factors.Learn(OpClass::kMatmul, Phase::kForward, "w0", 3, 7);
  factors.Learn(OpClass::kMatmul, Phase::kTraining, "w0", 3, 8);
  factors.Learn(OpClass::kSoftmax, Phase::kForward, "w1", 3, 1);
  CostFactors after;
  factors.ForEach([&](absl::string_view device, const auto& learned) {
    EXPECT_TRUE(after.Restore(device, learned));
  });
  for (CostFactors* each : {&factors, &after}) {
    each->Learn(OpClass::kMatmul, Phase::kForward, "w0", 3, 11);
  }
  for (const char* device : {"w0", "w1"}) {
    for (const OpClass op_class : {OpClass::kMatmul, OpClass::kSoftmax}) {
      EXPECT_EQ(factors.Factor(op_class, Phase::kForward, device),
                after.Factor(op_class, Phase::kForward, device));
    }
  }
}

TEST(CostFactorsTest, ImpossibleFactorsAreRefused) {
  CostFactors factors;
  for (const double logarithm : {std::nan(""), HUGE_VAL, -HUGE_VAL, 14.0}) {
    EXPECT_FALSE(factors.Restore(
        "w0", {{{OpClass::kMatmul, Phase::kForward}, 1.0},
               {{OpClass::kMatmul, Phase::kTraining}, logarithm}}));
  }
  factors.ForEach(
      [](absl::string_view device, const auto&) { ADD_FAILURE() << device; });
}

}  // namespace
}  // namespace djinn::semantics
