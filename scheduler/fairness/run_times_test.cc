#include "scheduler/fairness/run_times.h"

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

TEST(RunTimesTest, NothingIsExpectedOfWhatIsNotKnown) {
  RunTimes times;
  EXPECT_EQ(times.Expected(1, absl::Seconds(1)), absl::ZeroDuration());
  // The first run includes making the plan, and is not counted.
  times.Note(1, absl::Seconds(9), absl::Seconds(1));
  EXPECT_EQ(times.Expected(1, absl::Seconds(1)), absl::ZeroDuration());
  times.Note(1, absl::Seconds(2), absl::Seconds(2));
  EXPECT_EQ(times.Expected(1, absl::Seconds(2)), absl::Seconds(2));
  EXPECT_EQ(times.Expected(2, absl::Seconds(2)), absl::ZeroDuration());
}

TEST(RunTimesTest, TheShortestOfTheLastFourCounts) {
  RunTimes times;
  const absl::Duration now = absl::Seconds(1);
  times.Note(1, absl::Seconds(50), now);
  for (const int seconds : {1, 5, 4, 3}) {
    times.Note(1, absl::Seconds(seconds), now);
  }
  EXPECT_EQ(times.Expected(1, now), absl::Seconds(1));
  times.Note(1, absl::Seconds(6), now);
  EXPECT_EQ(times.Expected(1, now), absl::Seconds(3));
}

TEST(RunTimesTest, IsTrustedForAWhile) {
  RunTimes times;
  const absl::Duration now = absl::Seconds(1);
  times.Note(1, absl::Seconds(1), now);
  times.Note(1, absl::Seconds(1), now);
  EXPECT_GT(times.Expected(1, now + RunTimes::kTrusted), absl::ZeroDuration());
  EXPECT_EQ(times.Expected(1, now + RunTimes::kTrusted + absl::Nanoseconds(1)),
            absl::ZeroDuration());
}

TEST(RunTimesTest, ForgottenPlaceHasNoExpectedTime) {
  RunTimes times;
  for (int i = 0; i < 3; ++i) {
    times.Note(1, absl::Seconds(1), absl::Seconds(1));
  }
  times.Forget(1);
  EXPECT_EQ(times.Expected(1, absl::Seconds(1)), absl::ZeroDuration());
}

}  // namespace
}  // namespace djinn::scheduler
