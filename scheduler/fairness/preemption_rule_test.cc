#include "scheduler/fairness/preemption_rule.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::scheduler {
namespace {

using Verdict = PreemptionRule::Verdict;

constexpr absl::Duration kNode = absl::Milliseconds(100);

TEST(PreemptionRuleTest, ATurnYieldsSoOftenAndThenGoesToItsEnd) {
  PreemptionRule rule;
  for (int i = 0; i < PreemptionRule::kMost; ++i) {
    EXPECT_EQ(rule.Ask(absl::ZeroDuration()), Verdict::kMay);
    rule.NoteYield();
  }
  EXPECT_EQ(rule.times(), PreemptionRule::kMost);
  EXPECT_EQ(rule.Ask(absl::ZeroDuration()), Verdict::kNoMore);
}

TEST(PreemptionRuleTest, AfterSoLongItGoesOnByANode) {
  PreemptionRule rule;
  EXPECT_EQ(rule.Ask(PreemptionRule::kLongest - absl::Nanoseconds(1)),
            Verdict::kMay);
  EXPECT_EQ(rule.Ask(PreemptionRule::kLongest), Verdict::kGoesOn);
  rule.NoteYield();
  EXPECT_EQ(rule.Ask(absl::ZeroDuration()), Verdict::kMay);
}

TEST(PreemptionRuleTest, TurnThatHoldsTheMemoryIsNotPreempted) {
  PreemptionRule rule;
  rule.PutOff();
  EXPECT_EQ(rule.Ask(absl::ZeroDuration()), Verdict::kNoMore);
}

// One session of each priority, all of one tenant, so that shares hold none
// back. Whenever a turn could yield, a session of a higher priority waits.
class Adversary {
 public:
  explicit Adversary(uint64_t seed) : random_(seed) {
    for (int key = 0; key < FairQueue::kPriorities; ++key) {
      queue_.Join(static_cast<uint64_t>(key), "tenant", 1, key);
    }
  }

  // Plays a turn of `nodes` nodes of the session with the lowest priority.
  void Play(int nodes) {
    queue_.MakeRunnable(0, {});
    ASSERT_EQ(queue_.Take(), 0u);
    Serve(0, nodes);
  }

  int most_times() const { return most_times_; }
  int most_depth() const { return most_depth_; }

 private:
  // Executes the turn, and all turns that preempt it.
  void Serve(uint64_t key, int nodes) {
    most_depth_ = std::max(most_depth_, ++depth_);
    PreemptionRule rule;
    int done = 0;
    while (done < nodes) {
      now_ += kNode;
      if (++done == nodes) break;
      ComeAgain(key);
      const absl::Duration began = now_;
      bool yielded_for = false;
      while (rule.Ask(now_ - began) == Verdict::kMay) {
        queue_.Charge(key, done * kNode);
        if (queue_.MayPreempt({&key, 1}, absl::InfiniteDuration()) !=
            FairQueue::Preemption::kHigherPriority) {
          break;
        }
        yielded_for = true;
        const absl::Duration before = now_;
        Serve(queue_.Take(), 1 + static_cast<int>(random_() % 3));
        longest_ = std::max(longest_, now_ - before);
        ComeAgain(key);
      }
      ASSERT_LT(now_ - began, PreemptionRule::kLongest + longest_);
      if (yielded_for) rule.NoteYield();
    }
    ASSERT_LE(rule.times(), PreemptionRule::kMost);
    most_times_ = std::max(most_times_, rule.times());
    queue_.Done(key, nodes * kNode, std::nullopt);
    --depth_;
  }

  void ComeAgain(uint64_t besides) {
    const uint64_t higher = FairQueue::kPriorities - 1 - besides;
    if (higher == 0) return;
    queue_.MakeRunnable(besides + 1 + random_() % higher, {});
  }

  std::mt19937_64 random_;
  FairQueue queue_;
  absl::Duration now_;
  absl::Duration longest_;
  int depth_ = 0, most_depth_ = 0, most_times_ = 0;
};

TEST(PreemptionRuleTest, EveryTurnEndsUnderAnAdversary) {
  int most_depth = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Adversary adversary(seed);
    adversary.Play(/*nodes=*/200);
    if (HasFailure()) return;
    EXPECT_EQ(adversary.most_times(), PreemptionRule::kMost);
    most_depth = std::max(most_depth, adversary.most_depth());
  }
  // Preemption reaches the bounds.
  EXPECT_EQ(most_depth, FairQueue::kPriorities);
}

}  // namespace
}  // namespace djinn::scheduler
