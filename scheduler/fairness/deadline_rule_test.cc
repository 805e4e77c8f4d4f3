#include "scheduler/fairness/deadline_rule.h"

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

constexpr absl::Duration Of(int seconds) { return absl::Seconds(seconds); }

TEST(DeadlineRuleTest, ARunIsJudgedByWhatItIsKnownToTake) {
  using enum DeadlineVerdict;
  EXPECT_EQ(JudgeDeadline(Of(10), Of(3), Of(4), Of(3)), kInTime);
  EXPECT_EQ(JudgeDeadline(Of(10), Of(3), Of(5), Of(3)), kWouldBeLate);
  EXPECT_EQ(JudgeDeadline(Of(10), Of(0), Of(50), Of(10)), kInTime);
  EXPECT_EQ(JudgeDeadline(Of(10), Of(0), Of(0), Of(11)), kMissed);
  EXPECT_EQ(JudgeDeadline(absl::InfiniteDuration(), Of(3), Of(50), Of(10)),
            kInTime);
}

class LateBehindTest : public testing::Test {
 protected:
  void Wait(uint64_t key, const char* tenant, int priority, int deadline,
            int expected) {
    queue_.Join(key, tenant, 1, priority);
    queue_.MakeRunnable(key, {Of(deadline), Of(expected)});
  }
  std::optional<absl::Duration> Late(uint64_t key, int deadline, int expected,
                                     std::optional<InService> in_service = {}) {
    return LateBehind(queue_, key, {Of(deadline), Of(expected)}, in_service,
                      Of(100));
  }

  FairQueue queue_;
};

TEST_F(LateBehindTest, RunsAheadCount) {
  Wait(1, "red", 1, 105, 3);
  Wait(2, "red", 1, 110, 4);
  EXPECT_EQ(Late(1, 103, 3), std::nullopt);
  EXPECT_EQ(Late(1, 102, 3), Of(0));
  EXPECT_EQ(Late(2, 107, 4), std::nullopt);
  EXPECT_EQ(Late(2, 106, 4), Of(3));
  // Unknown times refuse nothing.
  EXPECT_EQ(Late(2, 50, 0), std::nullopt);
  EXPECT_EQ(Late(2, 50, 4), Of(3));
}

TEST_F(LateBehindTest, StepInServiceCountsUnlessItYields) {
  Wait(1, "red", 1, 200, 0);
  EXPECT_EQ(queue_.Take(), 1u);
  Wait(2, "blue", 1, 110, 4);
  Wait(3, "blue", 2, 110, 4);
  Wait(4, "red", 1, 110, 4);
  // The step in service lasts until 108.
  const InService other = {1, Of(108)};
  EXPECT_EQ(Late(2, 111, 4, other), Of(4 + 8));
  EXPECT_EQ(Late(3, 105, 4, other), std::nullopt);
  // Within its tenant, the earlier deadline is first; blue precedes it.
  EXPECT_EQ(Late(4, 103, 4, other), queue_.Ahead(4));
  // The step in service should have ended by now.
  EXPECT_EQ(Late(2, 107, 4, InService{1, Of(99)}), Of(4));
}

}  // namespace
}  // namespace djinn::scheduler
