#include "common/base/stage_times.h"

#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr absl::Duration Us(int64_t us) { return absl::Microseconds(us); }

TEST(StageTimesTest, AddsUpWhatEachStageTook) {
  StageTimes<2> times;
  times.Enter(0, Us(10));
  times.Enter(1, Us(13));
  times.Leave(Us(20));
  times.Enter(0, Us(100));
  times.Leave(Us(101));
  EXPECT_EQ(times.At(Us(500)), (StageTimes<2>::Reading{Us(4), Us(7)}));
}

TEST(StageTimesTest, CutsAStageThatIsUnderWay) {
  StageTimes<2> times;
  times.Enter(1, Us(10));
  const auto first = times.At(Us(12));
  const auto second = times.At(Us(19));
  EXPECT_EQ(first[1], Us(2));
  EXPECT_EQ(second[1] - first[1], Us(7));
  EXPECT_EQ(second[0], Us(0));
}

TEST(StageTimesTest, AReadingFromBeforeTheStageSeesNothingOfIt) {
  StageTimes<1> times;
  times.Enter(0, Us(10));
  EXPECT_EQ(times.At(Us(9))[0], Us(0));
}

}  // namespace
}  // namespace djinn
