#include "scheduler/fairness/fair_queue.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

constexpr int kUsual = 2;
constexpr FairQueue::Work kWork;

// Takes `count` turns of the same length each; whoever ran has more to do.
// Returns how many turns each session got.
std::map<uint64_t, int> Serve(FairQueue* queue, int count,
                              absl::Duration length = absl::Milliseconds(1)) {
  std::map<uint64_t, int> turns;
  for (int i = 0; i < count; ++i) {
    const uint64_t key = queue->Take();
    ++turns[key];
    queue->Done(key, length, kWork);
  }
  return turns;
}

// As Serve(), in the order of the turns, and nobody has more to do.
std::vector<uint64_t> Drain(FairQueue* queue) {
  std::vector<uint64_t> order;
  while (!queue->empty()) {
    order.push_back(queue->Take());
    queue->Done(order.back(), absl::Milliseconds(1), std::nullopt);
  }
  return order;
}

void JoinAndWait(uint64_t key, const std::string& tenant, double weight,
                 FairQueue* queue) {
  queue->Join(key, tenant, weight, kUsual);
  queue->MakeRunnable(key, kWork);
}

TEST(FairQueueTest, SharesTimeNotTurns) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  JoinAndWait(2, "b", 1, &queue);
  std::map<uint64_t, int> turns;
  for (int i = 0; i < 400; ++i) {
    const uint64_t key = queue.Take();
    ++turns[key];
    queue.Done(key, absl::Milliseconds(key == 1 ? 1 : 3), kWork);
  }
  EXPECT_NEAR(turns[1], 300, 4);
  EXPECT_NEAR(turns[2], 100, 4);
}

TEST(FairQueueTest, WeightsAreHonoured) {
  FairQueue queue;
  JoinAndWait(1, "a", 3, &queue);
  JoinAndWait(2, "b", 1, &queue);
  std::map<uint64_t, int> turns = Serve(&queue, 400);
  EXPECT_NEAR(turns[1], 300, 4);
  EXPECT_NEAR(turns[2], 100, 4);
  queue.SetWeight("b", 3);
  turns = Serve(&queue, 400);
  EXPECT_NEAR(turns[1], 200, 4);
  EXPECT_NEAR(turns[2], 200, 4);
}

TEST(FairQueueTest, ManySessionsGetNoMoreThanOne) {
  FairQueue queue;
  for (uint64_t key = 1; key <= 16; ++key) JoinAndWait(key, "a", 1, &queue);
  JoinAndWait(17, "b", 1, &queue);
  const std::map<uint64_t, int> turns = Serve(&queue, 3200);
  EXPECT_NEAR(turns.at(17), 1600, 2);
  // And share what they get.
  for (uint64_t key = 1; key <= 16; ++key) EXPECT_NEAR(turns.at(key), 100, 2);
}

TEST(FairQueueTest, IdlingEarnsNothing) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  queue.Join(2, "b", 1, kUsual);
  queue.Join(3, "a", 1, kUsual);
  Serve(&queue, 1000);
  queue.MakeRunnable(2, kWork);
  queue.MakeRunnable(3, kWork);
  std::map<uint64_t, int> turns = Serve(&queue, 20);
  EXPECT_NEAR(turns[2], 10, 1);
  EXPECT_NEAR(turns[3], 5, 1);
}

TEST(FairQueueTest, ComingBackIsNoWayToForgetWhatWasUsed) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  JoinAndWait(2, "b", 1, &queue);
  EXPECT_EQ(queue.Take(), 1u);
  queue.Leave(1);
  queue.Done(1, absl::Seconds(1), kWork);
  JoinAndWait(3, "a", 1, &queue);
  const std::map<uint64_t, int> turns = Serve(&queue, 1000);
  EXPECT_EQ(turns.at(2), 1000);
}

TEST(FairQueueTest, NoSessionStarvesAnotherOneOfItsTenant) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  JoinAndWait(2, "a", 1, &queue);
  std::map<uint64_t, int> turns;
  for (int i = 0; i < 400; ++i) {
    const uint64_t key = queue.Take();
    ++turns[key];
    queue.Done(key, absl::Milliseconds(key == 1 ? 3 : 1), kWork);
  }
  EXPECT_NEAR(turns[1], 100, 4);
  EXPECT_NEAR(turns[2], 300, 4);
}

TEST(FairQueueTest, HigherPriorityThenEarlierDeadlineGoesFirst) {
  FairQueue queue;
  const auto at = [](int second) {
    return FairQueue::Work{.deadline = absl::Seconds(second)};
  };
  queue.Join(1, "a", 1, 1);
  queue.Join(2, "a", 1, 2);
  queue.Join(3, "a", 1, 2);
  queue.Join(4, "a", 1, 3);
  queue.Join(5, "a", 1, 2);
  queue.MakeRunnable(1, at(1));
  queue.MakeRunnable(2, at(9));
  queue.MakeRunnable(3, at(5));
  queue.MakeRunnable(4, kWork);
  queue.MakeRunnable(5, kWork);
  queue.SetPriority(1, 3);
  EXPECT_EQ(Drain(&queue), (std::vector<uint64_t>{1, 4, 3, 2, 5}));
}

TEST(FairQueueTest, UrgencyDecidesNothingBetweenTenants) {
  FairQueue queue;
  queue.Join(1, "a", 1, 3);
  queue.MakeRunnable(1, {.deadline = absl::Seconds(1)});
  queue.Join(2, "b", 1, 0);
  queue.MakeRunnable(2, kWork);
  const std::map<uint64_t, int> turns = Serve(&queue, 100);
  EXPECT_EQ(turns.at(1), 50);
  EXPECT_EQ(turns.at(2), 50);
}

TEST(FairQueueTest, WhatIsExpectedCountsUntilItIsKnown) {
  FairQueue queue;
  const FairQueue::Work long_work{.expected = absl::Seconds(10)};
  for (uint64_t key : {1, 2, 3, 4}) {
    queue.Join(key, key == 4 ? "b" : "a", 1, kUsual);
    queue.MakeRunnable(key, key == 4 ? kWork : long_work);
  }
  EXPECT_EQ(queue.Take(), 1u);
  EXPECT_EQ(queue.Take(), 4u);
  queue.Done(4, absl::Seconds(9), kWork);
  EXPECT_EQ(queue.Take(), 4u);
  queue.Done(4, absl::Seconds(9), kWork);
  // It took less than expected.
  queue.Done(1, absl::Seconds(1), std::nullopt);
  EXPECT_EQ(queue.Take(), 2u);
}

TEST(FairQueueTest, WorkThatArrivesWhileRunningIsNotLost) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  EXPECT_EQ(queue.Take(), 1u);
  EXPECT_TRUE(queue.empty());
  queue.MakeRunnable(1, kWork);
  EXPECT_TRUE(queue.empty());
  queue.Done(1, absl::ZeroDuration(), std::nullopt);
  EXPECT_EQ(Drain(&queue), (std::vector<uint64_t>{1}));
}

TEST(FairQueueTest, LeavingWorksInEveryState) {
  FairQueue queue;
  for (uint64_t key : {1, 2, 3}) queue.Join(key, "a", 1, kUsual);
  queue.MakeRunnable(1, kWork);
  queue.MakeRunnable(2, kWork);
  EXPECT_EQ(queue.Take(), 1u);
  queue.Leave(1);
  queue.Leave(2);
  queue.Leave(3);
  queue.Done(1, absl::Seconds(1), kWork);
  queue.MakeRunnable(2, kWork);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueueTest, TenantsThatCameAndWentAreForgotten) {
  FairQueue queue;
  for (uint64_t key = 1; key <= 100'000; ++key) {
    JoinAndWait(key, std::to_string(key), 1, &queue);
    EXPECT_EQ(Drain(&queue), (std::vector<uint64_t>{key}));
    queue.Leave(key);
  }
  EXPECT_LE(queue.tenant_count(), 200u);
}

}  // namespace
}  // namespace djinn::scheduler
