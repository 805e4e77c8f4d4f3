#include "gpu_worker/queue/fair_queue.h"

#include <map>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

TEST(FairQueueTest, SharesTimeNotTurns) {
  FairQueue queue;
  for (uint64_t key : {1, 2}) {
    queue.Join(key);
    queue.MakeRunnable(key);
  }
  std::map<uint64_t, int> turns;
  for (int i = 0; i < 400; ++i) {
    const uint64_t key = queue.Take();
    ++turns[key];
    // The second session's messages take three times as long.
    queue.Done(key, absl::Milliseconds(key == 1 ? 1 : 3), true);
  }
  EXPECT_NEAR(turns[1], 300, 4);
  EXPECT_NEAR(turns[2], 100, 4);
}

TEST(FairQueueTest, IdlingEarnsNothing) {
  FairQueue queue;
  queue.Join(1);
  queue.Join(2);
  queue.MakeRunnable(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(queue.Take(), 1u);
    queue.Done(1, absl::Seconds(1), true);
  }
  queue.MakeRunnable(2);
  std::map<uint64_t, int> turns;
  for (int i = 0; i < 10; ++i) {
    const uint64_t key = queue.Take();
    ++turns[key];
    queue.Done(key, absl::Seconds(1), true);
  }
  EXPECT_NEAR(turns[2], 5, 1);
}

TEST(FairQueueTest, WorkThatArrivesWhileRunningIsNotLost) {
  FairQueue queue;
  queue.Join(1);
  queue.MakeRunnable(1);
  EXPECT_EQ(queue.Take(), 1u);
  EXPECT_TRUE(queue.empty());
  queue.MakeRunnable(1);
  EXPECT_TRUE(queue.empty());
  queue.Done(1, absl::ZeroDuration(), false);
  EXPECT_FALSE(queue.empty());
}

TEST(FairQueueTest, LeavingWorksInEveryState) {
  FairQueue queue;
  for (uint64_t key : {1, 2, 3}) queue.Join(key);
  queue.MakeRunnable(1);
  queue.MakeRunnable(2);
  EXPECT_EQ(queue.Take(), 1u);
  queue.Leave(1);
  queue.Leave(2);
  queue.Leave(3);
  queue.Done(1, absl::Seconds(1), true);
  queue.MakeRunnable(2);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace djinn::worker
