#include "gpu_worker/device/cpu/apart.h"

#include <algorithm>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kMinPause = ApartWatch::kMinPause;

TEST(ApartWatchTest, LeavesWhereItIsWithTheOther) {
  ApartWatch watch;
  EXPECT_FALSE(watch.Note(false, absl::ZeroDuration()));
  EXPECT_TRUE(watch.Note(true, absl::ZeroDuration()));
}

TEST(ApartWatchTest, LeavesLessOftenWhereThatDoesNotHelp) {
  ApartWatch watch;
  absl::Duration now;
  absl::Duration pause = kMinPause;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(watch.Note(true, now));
    EXPECT_FALSE(watch.Note(true, now + pause - absl::Nanoseconds(1)));
    now += pause;
    pause = std::min(2 * pause, ApartWatch::kMaxPause);
  }
  EXPECT_EQ(pause, ApartWatch::kMaxPause);
}

TEST(ApartWatchTest, LeavesAtOnceWhereItHelpedTheLastTime) {
  ApartWatch watch;
  absl::Duration now;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(watch.Note(true, now)) << i;
    EXPECT_FALSE(watch.Note(false, now));
    now += kMinPause;
  }
}

TEST(ApartTest, ThreadsOnOneProcessorComeThroughIt) {
  // Wherever this thread is: it stands for both.
  Apart apart;
  apart.Begin(1, 2);
  apart.Begin(0, 2);
  apart.Begin(1, 2);
  apart.Begin(1, 2);
  apart.Begin(1, 1 << 20);
}

}  // namespace
}  // namespace djinn::worker
