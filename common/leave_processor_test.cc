#include "common/leave_processor.h"

#include <sched.h>

#include <algorithm>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr absl::Duration kMinPause = absl::Milliseconds(1);

TEST(LeavePaceTest, LeavesWhereItIsCrowded) {
  LeavePace pace(kMinPause);
  EXPECT_FALSE(pace.Note(false, absl::ZeroDuration()));
  EXPECT_TRUE(pace.Note(true, absl::ZeroDuration()));
}

TEST(LeavePaceTest, LeavesLessOftenWhereThatDoesNotHelp) {
  LeavePace pace(kMinPause);
  absl::Duration now;
  absl::Duration pause = kMinPause;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(pace.Note(true, now));
    EXPECT_FALSE(pace.Note(true, now + pause - absl::Nanoseconds(1)));
    now += pause;
    pause = std::min(2 * pause, LeavePace::kMaxPause);
  }
  EXPECT_EQ(pause, LeavePace::kMaxPause);
}

TEST(LeavePaceTest, LeavesAtOnceWhereItHelpedTheLastTime) {
  LeavePace pace(kMinPause);
  absl::Duration now;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(pace.Note(true, now)) << i;
    EXPECT_FALSE(pace.Note(false, now));
    now += kMinPause;
  }
}

TEST(LeaveProcessorTest, LeavesTheAffinityAsItWas) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  LeaveProcessor();
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace djinn
