#include "gpu_worker/device/cpu/calibration.h"

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Bounds that no machine of today comes near.
TEST(CalibrationTest, FindsWhatAProcessorCanDo) {
  const v1::DeviceSpeed speed = MeasureCpuSpeed(Clock::Real());
  EXPECT_GT(speed.flops_per_second(), 1e7);
  EXPECT_LT(speed.flops_per_second(), 1e15);
  EXPECT_GT(speed.bytes_per_second(), 1e7);
  EXPECT_LT(speed.bytes_per_second(), 1e14);
  EXPECT_GT(speed.seconds_per_call(), 1e-9);
  EXPECT_LT(speed.seconds_per_call(), 0.1);
}

TEST(CalibrationTest, AClockThatStandsStillIsNoDivisionByZero) {
  FakeClock clock;
  const v1::DeviceSpeed speed = MeasureCpuSpeed(&clock);
  EXPECT_GT(speed.flops_per_second(), 0);
  EXPECT_LT(speed.flops_per_second(), 1e18);
}

}  // namespace
}  // namespace djinn::worker
