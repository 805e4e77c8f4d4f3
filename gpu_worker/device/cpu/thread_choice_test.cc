#include "gpu_worker/device/cpu/thread_choice.h"

#include "ATen/Parallel.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Takes the turns of a period's trials; says what each took.
void Measure(ThreadChoice* choice, uint64_t all, uint64_t one) {
  for (uint32_t i = 0; i < 2 * ThreadChoice::kTrials; ++i) {
    const ThreadChoice::Turn turn = choice->Next();
    ASSERT_TRUE(turn.measured);
    ASSERT_EQ(turn.one_thread, i >= ThreadChoice::kTrials);
    // The best counts: others may have been disturbed.
    choice->Took(turn.one_thread,
                 (turn.one_thread ? one : all) + (i % 2) * 100000);
  }
}

TEST(ThreadChoiceTest, TakesWhatWasFasterAndMeasuresAgain) {
  ThreadChoice choice;
  Measure(&choice, /*all=*/500, /*one=*/400);
  for (uint32_t i = 2 * ThreadChoice::kTrials; i < ThreadChoice::kPeriod; ++i) {
    const ThreadChoice::Turn turn = choice.Next();
    ASSERT_TRUE(turn.one_thread);
    ASSERT_FALSE(turn.measured);
  }
  Measure(&choice, /*all=*/300, /*one=*/400);
  EXPECT_FALSE(choice.Next().one_thread);
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
