#include "gpu_worker/device/cpu/trial_pace.h"

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

TEST(TrialPaceTest, RestsAfterATrial) {
  TrialPace pace;
  EXPECT_TRUE(pace.IsDue(absl::ZeroDuration()));
  pace.Took(absl::Seconds(10), absl::Seconds(11));
  EXPECT_FALSE(pace.IsDue(absl::Seconds(11)));
  const absl::Duration due = absl::Seconds(11 + TrialPace::kRest);
  EXPECT_FALSE(pace.IsDue(due - absl::Nanoseconds(1)));
  EXPECT_TRUE(pace.IsDue(due));
}

TEST(TrialPaceTest, TheFirstTrialsFollowEachOther) {
  TrialPace pace;
  const absl::Duration half = TrialPace::kUnpaced / 2;
  pace.Took(absl::ZeroDuration(), half);
  EXPECT_TRUE(pace.IsDue(half));
  pace.Took(half, 2 * half);
  EXPECT_TRUE(pace.IsDue(2 * half));
  pace.Took(2 * half, 3 * half);
  EXPECT_FALSE(pace.IsDue(3 * half));
  EXPECT_TRUE(pace.IsDue(3 * half + TrialPace::kRest * half));
}

}  // namespace
}  // namespace djinn::worker
