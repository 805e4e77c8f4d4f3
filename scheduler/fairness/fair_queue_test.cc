#include "scheduler/fairness/fair_queue.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/fairness/fair_queue_testing.h"

namespace djinn::scheduler {
namespace {

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
  // The sessions share what their tenant gets.
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

TEST(FairQueueTest, HigherPriorityThenEarlierDeadlineIsServedFirst) {
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

TEST(FairQueueTest, PriorityDecidesNothingBetweenTenants) {
  FairQueue queue;
  queue.Join(1, "a", 1, 3);
  queue.MakeRunnable(1, {.deadline = absl::Seconds(1)});
  queue.Join(2, "b", 1, 0);
  queue.MakeRunnable(2, kWork);
  const std::map<uint64_t, int> turns = Serve(&queue, 100);
  EXPECT_EQ(turns.at(1), 50);
  EXPECT_EQ(turns.at(2), 50);
}

TEST(FairQueueTest, ExpectedTimeCountsUntilTheStepEnds) {
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
  // The step took less time than expected.
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

TEST(FairQueueTest, TellsWhoIsNextWithoutTakingIt) {
  FairQueue queue;
  JoinAndWait(1, "a", 1, &queue);
  JoinAndWait(2, "a", 1, &queue);
  JoinAndWait(3, "b", 1, &queue);
  queue.SetPriority(2, kUsual + 1);
  EXPECT_EQ(queue.priority(1), kUsual);
  EXPECT_EQ(queue.priority(2), kUsual + 1);
  for (int turn = 0; turn < 6; ++turn) {
    const uint64_t next = queue.Next();
    EXPECT_EQ(queue.Next(), next);
    EXPECT_EQ(queue.Take(), next);
    queue.Done(next, absl::Milliseconds(1), kWork);
  }
}

TEST(FairQueueTest, CountsTheSessionsOfATenant) {
  FairQueue queue;
  EXPECT_EQ(queue.session_count("a"), 0u);
  JoinAndWait(1, "a", 1, &queue);
  JoinAndWait(2, "a", 1, &queue);
  JoinAndWait(3, "b", 1, &queue);
  EXPECT_EQ(queue.session_count("a"), 2u);
  queue.Leave(1);
  EXPECT_EQ(queue.session_count("a"), 1u);
}

// Three waiting sessions each of tenants a (1 to 3), b (4 to 6) and c (7 to 9).
class BatchTest : public testing::Test {
 protected:
  BatchTest() {
    for (uint64_t key = 1; key <= 9; ++key) {
      JoinAndWait(key, std::string(1, static_cast<char>('a' + (key - 1) / 3)),
                  1, &queue_);
    }
  }
  FairQueue::Batch Find(uint64_t key, uint64_t first, uint64_t last,
                        size_t most = 16) {
    return queue_.FindBatch(
        key, [=](uint64_t k) { return k >= first && k <= last; }, most);
  }
  static std::vector<uint64_t> KeysOf(const FairQueue::Batch& batch) {
    std::vector<uint64_t> keys;
    for (const auto& member : batch.members) keys.push_back(member.key);
    return keys;
  }
  // Puts b ahead of the others by more than a turn.
  void PutAhead() {
    for (int turn = 0; turn < 2; ++turn) {
      const uint64_t key = queue_.Take();
      EXPECT_TRUE(queue_.TakeBeside(4, /*contested=*/true));
      queue_.Done(key, absl::Milliseconds(1), kWork);
      queue_.Done(4, absl::Milliseconds(10), kWork);
    }
  }

  FairQueue queue_;
};

TEST_F(BatchTest, IsOfThoseThatSuit) {
  ASSERT_EQ(queue_.Take(), 1u);
  const FairQueue::Batch batch = Find(1, 2, 4);
  EXPECT_EQ(KeysOf(batch), (std::vector<uint64_t>{4, 2, 3}));
  EXPECT_TRUE(batch.contested);
  EXPECT_FALSE(Find(1, 2, 9).contested);
}

TEST_F(BatchTest, IsNoLargerThanItMayBe) {
  ASSERT_EQ(queue_.Take(), 1u);
  const FairQueue::Batch batch = Find(1, 2, 9, 2);
  EXPECT_EQ(batch.members.size(), 2u);
  // The other sessions that suit still wait.
  EXPECT_TRUE(batch.contested);
}

TEST_F(BatchTest, HasNoMemberOfALowerPriority) {
  queue_.SetPriority(2, kUsual - 1);
  queue_.SetPriority(3, kUsual + 1);
  ASSERT_EQ(queue_.Take(), 3u);
  EXPECT_TRUE(Find(3, 1, 9).members.empty());
  queue_.Done(3, absl::Milliseconds(1), std::nullopt);
  ASSERT_EQ(queue_.Take(), 4u);
  EXPECT_EQ(KeysOf(Find(4, 1, 3)), (std::vector<uint64_t>{1}));
}

TEST_F(BatchTest, EachIsChargedItsPart) {
  ASSERT_EQ(queue_.Take(), 1u);
  EXPECT_TRUE(queue_.TakeBeside(4, /*contested=*/true));
  EXPECT_FALSE(queue_.TakeBeside(4, true));
  queue_.Done(1, absl::Milliseconds(1), std::nullopt);
  queue_.Done(4, absl::Milliseconds(3), std::nullopt);
  // c has had nothing, and a has had less than b.
  EXPECT_EQ(queue_.Take(), 7u);
  queue_.Done(7, absl::Milliseconds(2), std::nullopt);
  EXPECT_EQ(queue_.Take(), 2u);
  queue_.Done(2, absl::Milliseconds(5), std::nullopt);
  EXPECT_EQ(queue_.Take(), 8u);
}

TEST_F(BatchTest, LeavesOutATenantThatIsAheadOfWhoWaits) {
  for (int turn = 0; turn < 2; ++turn) {
    const uint64_t key = queue_.Take();
    EXPECT_EQ(key, turn == 0 ? 1u : 7u);
    const FairQueue::Batch batch = Find(key, 4, 4);
    // After the first turn, b is ahead by one turn of its own.
    ASSERT_EQ(batch.members.size(), 1u) << turn;
    EXPECT_TRUE(queue_.TakeBeside(4, batch.contested));
    queue_.Done(key, absl::Milliseconds(1), kWork);
    queue_.Done(4, absl::Milliseconds(10), kWork);
  }
  const uint64_t key = queue_.Take();
  EXPECT_TRUE(Find(key, 4, 4).members.empty());
}

TEST_F(BatchTest, SessionsAheadComeLast) {
  PutAhead();
  const uint64_t key = queue_.Take();
  const FairQueue::Batch batch = Find(key, 1, 9);
  ASSERT_EQ(batch.members.size(), 8u);
  EXPECT_FALSE(batch.contested);
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t member = batch.members[i].key;
    EXPECT_EQ(batch.members[i].ahead, i >= 5) << i;
    EXPECT_EQ(member >= 4 && member <= 6, i >= 5) << i;
  }
}

TEST_F(BatchTest, SessionsAheadLeaveTheirPlacesToOthers) {
  PutAhead();
  const uint64_t key = queue_.Take();
  const FairQueue::Batch batch = Find(key, 1, 9, /*most=*/6);
  EXPECT_EQ(batch.members.size(), 5u);
  EXPECT_TRUE(batch.contested);
}

TEST_F(BatchTest, UncontestedBatchOwesNothing) {
  for (uint64_t key = 7; key <= 9; ++key) queue_.Leave(key);
  for (int turn = 0; turn < 5; ++turn) {
    const uint64_t key = queue_.Take();
    ASSERT_LE(key, 3u);
    const FairQueue::Batch batch = Find(key, 1, 9);
    EXPECT_FALSE(batch.contested);
    for (const uint64_t other : KeysOf(batch)) {
      EXPECT_TRUE(queue_.TakeBeside(other, false));
    }
    queue_.Done(key, absl::Milliseconds(1), kWork);
    for (const uint64_t other : KeysOf(batch)) {
      queue_.Done(other, absl::Milliseconds(other > 3 ? 10 : 1), kWork);
    }
  }
  // b has had ten times as much, and is only a turn ahead nevertheless.
  JoinAndWait(10, "d", 1, &queue_);
  std::map<uint64_t, int> turns = Serve(&queue_, 90, absl::Milliseconds(10));
  EXPECT_NEAR(turns[4] + turns[5] + turns[6], 30, 5);
}

TEST(FairQueueAheadTest, CountsWorkThatCertainlyPrecedes) {
  FairQueue queue;
  const auto wait = [&](uint64_t key, const std::string& tenant, int priority,
                        int milliseconds) {
    queue.Join(key, tenant, 1, priority);
    queue.MakeRunnable(key, {.expected = absl::Milliseconds(milliseconds)});
  };
  wait(1, "a", 1, 1);
  EXPECT_EQ(queue.Ahead(1), absl::ZeroDuration());
  // Two sessions of its tenant: one of higher and one of lower priority.
  wait(2, "a", 2, 10);
  wait(3, "a", 0, 100);
  EXPECT_EQ(queue.Ahead(1), absl::Milliseconds(10));
  // Another tenant, which had as much and came later, and has had less after
  // the next turn.
  wait(4, "b", 1, 1000);
  EXPECT_EQ(queue.Ahead(1), absl::Milliseconds(10));
  ASSERT_EQ(queue.Take(), 2u);
  queue.Done(2, absl::Milliseconds(10), std::nullopt);
  EXPECT_EQ(queue.Ahead(1), absl::Milliseconds(1000));
  // A session that does not wait, and an unknown one.
  EXPECT_EQ(queue.Ahead(2), absl::ZeroDuration());
  EXPECT_EQ(queue.Ahead(7), absl::ZeroDuration());
}

}  // namespace
}  // namespace djinn::scheduler
