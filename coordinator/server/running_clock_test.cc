#include "coordinator/server/running_clock.h"

#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

TEST(RunningClockTest, GoesAsTheClockDoesWhileSomebodyLooks) {
  FakeClock clock;
  RunningClock running(&clock, absl::Seconds(1));
  const absl::Duration start = running.Monotonic();
  for (int i = 0; i < 100; ++i) {
    clock.Advance(absl::Milliseconds(900));
    EXPECT_EQ(running.Monotonic() - start, (i + 1) * absl::Milliseconds(900));
  }
  EXPECT_EQ(running.TakeLeftOut(), absl::ZeroDuration());
}

TEST(RunningClockTest, UnobservedTimeIsLeftOut) {
  FakeClock clock;
  RunningClock running(&clock, absl::Seconds(1));
  const absl::Duration start = running.Monotonic();
  clock.Advance(absl::Seconds(12));
  EXPECT_EQ(running.Monotonic() - start, absl::Seconds(1));
  EXPECT_EQ(running.Monotonic() - start, absl::Seconds(1));
  clock.Advance(absl::Milliseconds(500));
  EXPECT_EQ(running.Monotonic() - start, absl::Milliseconds(1500));
  // Wall time is not changed.
  EXPECT_EQ(running.Now(), clock.Now());
}

TEST(RunningClockTest, SaysOnceWhatItLeftOut) {
  FakeClock clock;
  RunningClock running(&clock, absl::Seconds(1));
  for (const int seconds : {12, 31}) {
    clock.Advance(absl::Seconds(seconds));
    running.Monotonic();
    EXPECT_EQ(running.TakeLeftOut(), absl::Seconds(seconds - 1));
    EXPECT_EQ(running.TakeLeftOut(), absl::ZeroDuration());
  }
}

TEST(RunningClockTest, WithoutAStepNothingIsLeftOut) {
  FakeClock clock;
  RunningClock running(&clock, absl::InfiniteDuration());
  const absl::Duration start = running.Monotonic();
  clock.Advance(absl::Hours(100));
  EXPECT_EQ(running.Monotonic() - start, absl::Hours(100));
}

}  // namespace
}  // namespace djinn::coordinator
