#include "gpu_worker/device/cpu/measured_choice.h"

#include <array>
#include <utility>

#include "ATen/Parallel.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Choice = MeasuredChoice<3>;

// Takes the runs of a period's trials; says what each took.
void Measure(Choice* choice, const std::array<uint64_t, 3>& nanoseconds) {
  std::array<uint32_t, 3> measured = {};
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice->Next();
    if (!turn.measured) continue;
    ASSERT_EQ(turn.way, i % Choice::kRound / Choice::kAtATime);
    // Some were disturbed.
    const bool disturbed = measured[turn.way]++ < 3;
    choice->Took(turn.way, nanoseconds[turn.way] + (disturbed ? 100000 : 0));
  }
  for (const uint32_t count : measured) ASSERT_EQ(count, Choice::kTrials);
}

void ExpectUnmeasured(Choice* choice, uint32_t runs, size_t way) {
  for (uint32_t i = 0; i < runs; ++i) {
    const MeasuredTurn turn = choice->Next();
    ASSERT_EQ(turn.way, way);
    ASSERT_FALSE(turn.measured);
  }
}

TEST(MeasuredChoiceTest, TakesWhatWasFastestAndMeasuresAgain) {
  Choice choice;
  Measure(&choice, {500, 450, 400});
  ExpectUnmeasured(&choice, Choice::kFirstPeriod - Choice::kAllTrials, 2);
  Measure(&choice, {500, 300, 400});
  ExpectUnmeasured(&choice, Choice::kPeriod - Choice::kAllTrials, 1);
  Measure(&choice, {300, 450, 400});
  EXPECT_EQ(choice.Next().way, 0u);
}

TEST(MeasuredChoiceTest, WhatIsFastOnceIsNotFast) {
  Choice choice;
  bool lucky = true;
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice.Next();
    if (!turn.measured) continue;
    const bool now = turn.way == 2 && std::exchange(lucky, false);
    choice.Took(turn.way, now ? 10 : 400 + 100 * turn.way);
  }
  EXPECT_EQ(choice.Next().way, 0u);
}

// Others have the processors for a while, in which all ways are tried.
TEST(MeasuredChoiceTest, WhatDisturbsForAWhileDisturbsAllWays) {
  Choice choice;
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice.Next();
    const bool disturbed = i < Choice::kAllTrials / 3;
    const uint64_t nanoseconds = turn.way == 0 ? 300 : 500;
    if (turn.measured) {
      choice.Took(turn.way, nanoseconds * (disturbed && turn.way == 0 ? 4 : 1));
    }
  }
  EXPECT_EQ(choice.Next().way, 0u);
}

// A way that always failed has no time.
TEST(MeasuredChoiceTest, PassesOverWhatWasNeverTimed) {
  Choice choice;
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice.Next();
    if (turn.measured && turn.way == 1) choice.Took(turn.way, 1000000);
  }
  EXPECT_EQ(choice.Next().way, 1u);
}

TEST(ThreadScopeTest, HasOneThreadAndThenAllAgain) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  {
    const ThreadScope all(false);
    EXPECT_EQ(at::get_num_threads(), 3);
    const ThreadScope one(true);
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace djinn::worker
