#include "gpu_worker/device/cpu/calibration.h"

#include <functional>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Checks bounds that no present machine comes near.
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

// Simulates work that takes given times, and processors that are taken away.
class BestTimeTest : public testing::Test {
 protected:
  absl::Duration Best(std::function<absl::Duration(int)> took,
                      std::function<bool(int)> loses) {
    int64_t lost = 0;
    tries_ = 0;
    return BestTime(
        &clock_, [&] { return lost; },
        [&] {
          clock_.Advance(took(tries_));
          lost += loses(tries_) ? 1 : 0;
          ++tries_;
        });
  }

  FakeClock clock_;
  int tries_ = 0;
};

TEST_F(BestTimeTest, IsTheLeastOfAFewTries) {
  const absl::Duration best =
      Best([](int i) { return absl::Milliseconds(i == 3 ? 2 : 5); },
           [](int) { return false; });
  EXPECT_EQ(best, absl::Milliseconds(2));
  EXPECT_EQ(tries_, 7);
}

TEST_F(BestTimeTest, LeavesOutWhatOthersTookAProcessorFrom) {
  // A try does not count even if it was the shortest.
  const absl::Duration best = Best(
      [](int i) {
        return absl::Milliseconds(i < 29 ? 9 : i == 29 ? 1 : 5);
      },
      [](int i) { return i < 30; });
  EXPECT_EQ(best, absl::Milliseconds(5));
  EXPECT_EQ(tries_, 37);
}

TEST_F(BestTimeTest, EndsWhereItIsNeverLeftAlone) {
  const absl::Duration best =
      Best([](int i) { return absl::Milliseconds(9 - i % 4); },
           [](int) { return true; });
  EXPECT_EQ(best, absl::Milliseconds(6));
  EXPECT_EQ(tries_, 70);
}

}  // namespace
}  // namespace djinn::worker
