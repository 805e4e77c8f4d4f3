#include "gpu_worker/device/cpu/measured_choice.h"

#include <array>

#include "ATen/Parallel.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Choice = MeasuredChoice<3>;

// Takes the turns of a period's trials; says what each took.
void Measure(Choice* choice, const std::array<uint64_t, 3>& nanoseconds) {
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice->Next();
    ASSERT_TRUE(turn.measured);
    ASSERT_EQ(turn.way, i / Choice::kTrials);
    // One was disturbed.
    choice->Took(turn.way, nanoseconds[turn.way] +
                               (i % Choice::kTrials == 5 ? 100000 : 0));
  }
}

TEST(MeasuredChoiceTest, TakesWhatWasFastestAndMeasuresAgain) {
  Choice choice;
  Measure(&choice, {500, 450, 400});
  for (uint32_t i = Choice::kAllTrials; i < Choice::kPeriod; ++i) {
    const MeasuredTurn turn = choice.Next();
    ASSERT_EQ(turn.way, 2u);
    ASSERT_FALSE(turn.measured);
  }
  Measure(&choice, {300, 450, 400});
  EXPECT_EQ(choice.Next().way, 0u);
}

TEST(MeasuredChoiceTest, WhatIsFastOnceIsNotFast) {
  Choice choice;
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice.Next();
    const bool lucky = turn.way == 2 && i % Choice::kTrials == 3;
    choice.Took(turn.way, lucky ? 10 : 400 + 100 * turn.way);
  }
  EXPECT_EQ(choice.Next().way, 0u);
}

// A way that always failed has no time.
TEST(MeasuredChoiceTest, PassesOverWhatWasNeverTimed) {
  Choice choice;
  for (uint32_t i = 0; i < Choice::kAllTrials; ++i) {
    const MeasuredTurn turn = choice.Next();
    if (turn.way == 1) choice.Took(turn.way, 1000000);
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
