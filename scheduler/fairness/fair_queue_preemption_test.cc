// Tests which waiting sessions may preempt the one in service.
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/fairness/fair_queue.h"
#include "scheduler/fairness/fair_queue_testing.h"

namespace djinn::scheduler {
namespace {

// Session 1 of tenant a, of low priority, is in service; b's waits.
class PreemptionTest : public testing::Test {
 protected:
  using Preemption = FairQueue::Preemption;
  static constexpr int kLow = kUsual - 1;

  PreemptionTest() {
    Wait(1, "a");
    EXPECT_EQ(queue_.Take(), 1u);
  }
  void Wait(uint64_t key, const std::string& tenant,
            const FairQueue::Work& work = kWork, int priority = kLow) {
    queue_.Join(key, tenant, 1, priority);
    queue_.MakeRunnable(key, work);
  }
  // Charges both sessions of a shared step for a millisecond.
  void ChargeBoth() {
    queue_.Charge(1, absl::Milliseconds(1));
    queue_.Charge(2, absl::Milliseconds(1));
  }
  // Returns what may preempt a step that ends late.
  Preemption OfLate(const std::vector<uint64_t>& sessions) {
    return queue_.MayPreempt(sessions, absl::InfiniteDuration());
  }
  Preemption After(absl::Duration used,
                   absl::Duration end = absl::InfiniteDuration()) {
    queue_.Charge(1, used);
    return queue_.MayPreempt({1}, end);
  }

  FairQueue queue_;
};

TEST_F(PreemptionTest, HigherPriorityPreempts) {
  EXPECT_EQ(After(absl::Milliseconds(1)), Preemption::kNone);
  JoinAndWait(2, "b", 1, &queue_);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kHigherPriority);
  EXPECT_EQ(queue_.Take(), 2u);
  queue_.Done(2, absl::Milliseconds(1), std::nullopt);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
}

TEST_F(PreemptionTest, TheSamePriorityWaits) {
  Wait(2, "b");
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
}

TEST_F(PreemptionTest, HigherPriorityOfTheSameTenantPreempts) {
  JoinAndWait(2, "a", 1, &queue_);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kHigherPriority);
}

TEST_F(PreemptionTest, SharesOfTenantsStay) {
  JoinAndWait(2, "b", 1, &queue_);
  EXPECT_EQ(After(absl::Milliseconds(1)), Preemption::kHigherPriority);
  EXPECT_EQ(queue_.Take(), 2u);
  queue_.Done(2, absl::Milliseconds(5), kWork);
  // By now b has had more than a.
  EXPECT_EQ(After(absl::Milliseconds(4)), Preemption::kLater);
  EXPECT_EQ(After(absl::Milliseconds(6)), Preemption::kHigherPriority);
}

TEST_F(PreemptionTest, PreemptedStepIsChargedOnce) {
  JoinAndWait(2, "b", 1, &queue_);
  EXPECT_EQ(After(absl::Milliseconds(9)), Preemption::kHigherPriority);
  queue_.Done(1, absl::Milliseconds(10), kWork);
  const std::map<uint64_t, int> turns = Serve(&queue_, 30);
  EXPECT_EQ(turns.at(2), 20);
}

TEST_F(PreemptionTest, DeadlineThatWouldPassPreemptsInItsTenant) {
  Wait(2, "a", {.deadline = absl::Milliseconds(100)});
  EXPECT_EQ(After(absl::Milliseconds(1), absl::Milliseconds(90)),
            Preemption::kLater);
  EXPECT_EQ(After(absl::Milliseconds(2), absl::Milliseconds(110)),
            Preemption::kDeadline);
  queue_.Leave(2);
  Wait(3, "b", {.deadline = absl::Milliseconds(100)});
  EXPECT_EQ(After(absl::Milliseconds(3), absl::Milliseconds(110)),
            Preemption::kNone);
}

TEST_F(PreemptionTest, ADeadlineLeavesRoomForWhatItIsFor) {
  Wait(2, "a",
       {.deadline = absl::Milliseconds(100),
        .expected = absl::Milliseconds(20)});
  EXPECT_EQ(After(absl::Milliseconds(1), absl::Milliseconds(80)),
            Preemption::kLater);
  EXPECT_EQ(After(absl::Milliseconds(2), absl::Milliseconds(90)),
            Preemption::kDeadline);
}

// Session 1 of tenant a is in service with a long step.
class PaceTest : public PreemptionTest {
 protected:
  using Pace = FairQueue::Pace;

  PaceTest() { queue_.SetPace(1, Pace::kLong); }
  void Wait(uint64_t key, const std::string& tenant, Pace pace,
            int priority = kLow,
            absl::Duration deadline = absl::InfiniteDuration()) {
    PreemptionTest::Wait(key, tenant, {.deadline = deadline, .pace = pace},
                         priority);
  }
};

TEST_F(PaceTest, ShortStepPreemptsALongOne) {
  Wait(2, "b", Pace::kUnknown);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  Wait(3, "b", Pace::kShort);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kShort);
  // Session 3 preempts although another session of its tenant is next.
  EXPECT_EQ(queue_.Next(), 2u);
  EXPECT_EQ(queue_.TakePreempting(Preemption::kShort), 3u);
  queue_.Done(3, absl::Milliseconds(1), std::nullopt);
  EXPECT_EQ(After(absl::Milliseconds(3)), Preemption::kNone);
  EXPECT_EQ(queue_.Take(), 2u);
}

TEST_F(PaceTest, WaitingSessionTakesItsNewPaceAndDeadline) {
  Wait(2, "b", Pace::kUnknown);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  EXPECT_FALSE(queue_.MakeRunnable(2, {.pace = Pace::kUnknown}));
  EXPECT_TRUE(queue_.MakeRunnable(2, {.pace = Pace::kShort}));
  EXPECT_FALSE(queue_.MakeRunnable(2, {.pace = Pace::kShort}));
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kShort);
  EXPECT_FALSE(queue_.MakeRunnable(2, {.pace = Pace::kLong}));
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  // The earlier deadline of the tenant is next.
  Wait(3, "b", Pace::kUnknown, kLow, absl::Milliseconds(50));
  EXPECT_EQ(queue_.Next(), 3u);
  queue_.MakeRunnable(2, {.deadline = absl::Milliseconds(40)});
  EXPECT_EQ(queue_.Next(), 2u);
}

TEST_F(PaceTest, OnlyALongStepYieldsToAShortOne) {
  Wait(2, "b", Pace::kShort);
  for (const Pace pace : {Pace::kUnknown, Pace::kShort}) {
    queue_.SetPace(1, pace);
    EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  }
}

TEST_F(PaceTest, SharesOfTenantsStayForShortSteps) {
  Wait(2, "b", Pace::kShort);
  EXPECT_EQ(After(absl::Milliseconds(1)), Preemption::kShort);
  EXPECT_EQ(queue_.TakePreempting(Preemption::kShort), 2u);
  queue_.Done(2, absl::Milliseconds(5), FairQueue::Work{.pace = Pace::kShort});
  EXPECT_EQ(After(absl::Milliseconds(4)), Preemption::kLater);
  EXPECT_EQ(After(absl::Milliseconds(6)), Preemption::kShort);
  // The short step does not preempt while another tenant that has had less
  // waits.
  Wait(3, "c", Pace::kUnknown);
  EXPECT_EQ(After(absl::Milliseconds(9)), Preemption::kLater);
}

TEST_F(PaceTest, PaceCountsWithinAPriorityOnly) {
  Wait(2, "b", Pace::kShort, kLow + 1);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kHigherPriority);
  queue_.SetPriority(1, kLow + 2);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  queue_.SetPriority(2, kLow + 2);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kShort);
}

TEST_F(PaceTest, ShortRunYieldsToShortDeadlinesAlone) {
  queue_.SetPace(1, Pace::kShort);
  Wait(2, "a", Pace::kLong, kLow, absl::Milliseconds(50));
  EXPECT_EQ(After(absl::Milliseconds(1)), Preemption::kNone);
  Wait(3, "a", Pace::kShort, kLow, absl::Milliseconds(40));
  EXPECT_EQ(After(absl::Milliseconds(1)), Preemption::kDeadline);
  EXPECT_EQ(queue_.TakePreempting(Preemption::kDeadline), 3u);
}

TEST_F(PaceTest, AllOfASharedStepMustBeLong) {
  PreemptionTest::Wait(2, "b");
  ASSERT_TRUE(queue_.TakeBeside(2, /*contested=*/true));
  ChargeBoth();
  Wait(3, "c", Pace::kShort);
  EXPECT_EQ(OfLate({1, 2}), Preemption::kNone);
  queue_.SetPace(2, Pace::kLong);
  EXPECT_EQ(OfLate({1, 2}), Preemption::kShort);
}

TEST_F(PaceTest, DepartedSessionPreemptsNothing) {
  Wait(2, "b", Pace::kShort);
  Wait(3, "b", Pace::kUnknown);
  queue_.Leave(2);
  EXPECT_EQ(After(absl::Milliseconds(2)), Preemption::kNone);
  queue_.SetPace(2, Pace::kLong);
}

TEST_F(PreemptionTest, SharedStepHasTheHighestPriorityOfItsMembers) {
  JoinAndWait(2, "b", 1, &queue_);
  JoinAndWait(3, "c", 1, &queue_);
  ASSERT_TRUE(queue_.TakeBeside(2, /*contested=*/true));
  ChargeBoth();
  EXPECT_EQ(OfLate({1}), Preemption::kHigherPriority);
  EXPECT_EQ(OfLate({1, 2}), Preemption::kNone);
  queue_.SetPriority(3, kUsual + 1);
  EXPECT_EQ(OfLate({1, 2}), Preemption::kHigherPriority);
}

TEST_F(PreemptionTest, MemberThatHadLessProtectsASharedStep) {
  JoinAndWait(2, "b", 1, &queue_);
  queue_.SetPriority(2, kLow);
  queue_.Join(3, "c", 1, kUsual);
  ASSERT_TRUE(queue_.TakeBeside(2, /*contested=*/true));
  queue_.MakeRunnable(3, kWork);
  queue_.Charge(1, absl::Milliseconds(9));
  queue_.Charge(2, absl::Milliseconds(1));
  EXPECT_EQ(OfLate({1, 2}), Preemption::kHigherPriority);
  ASSERT_EQ(queue_.Take(), 3u);
  queue_.Done(3, absl::Milliseconds(5), kWork);
  EXPECT_EQ(OfLate({1}), Preemption::kHigherPriority);
  EXPECT_EQ(OfLate({1, 2}), Preemption::kLater);
}

TEST_F(PreemptionTest, ASharedStepIsAsHurriedAsTheMostHurriedOfIt) {
  const FairQueue::Work hurried{.deadline = absl::Milliseconds(50)};
  Wait(2, "a", hurried);
  ASSERT_TRUE(queue_.TakeBeside(2, /*contested=*/true));
  Wait(3, "a", {.deadline = absl::Milliseconds(100)});
  EXPECT_EQ(queue_.MayPreempt({1}, absl::Milliseconds(200)),
            Preemption::kDeadline);
  EXPECT_EQ(queue_.MayPreempt({1, 2}, absl::Milliseconds(200)),
            Preemption::kNone);
}

}  // namespace
}  // namespace djinn::scheduler
