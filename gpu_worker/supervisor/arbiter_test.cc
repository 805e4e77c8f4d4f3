#include "gpu_worker/supervisor/arbiter.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

std::unique_ptr<SharedTurnGate> GateOf(Arbiter* arbiter, uint64_t number) {
  Arbiter::Seat seat = arbiter->Add(number).value();
  return std::make_unique<SharedTurnGate>(
      TurnWord::Map(seat.word.get()).value(), std::move(seat.event));
}

// Enters and leaves, while the time passes that the arbiter lets others have.
void EnterAndLeave(SharedTurnGate* gate, Arbiter* arbiter, FakeClock* clock) {
  std::atomic<bool> entered{false};
  std::thread waiting([&] {
    gate->Enter();
    entered = true;
  });
  for (Patience patience; !entered; patience.Yield()) {
    clock->Advance(absl::Milliseconds(100));
    arbiter->Wake();
  }
  waiting.join();
  gate->Leave();
}

TEST(ArbiterTest, ExecutorThatIsAloneKeepsTheDevice) {
  Arbiter arbiter(Clock::Real());
  const auto gate = GateOf(&arbiter, 1);
  EXPECT_FALSE(gate->TryEnter());
  gate->Enter();
  for (int i = 0; i < 1000; ++i) {
    gate->Leave();
    ASSERT_TRUE(gate->TryEnter());
  }
  gate->Leave();
  EXPECT_EQ(arbiter.handovers(), 1u);
}

TEST(ArbiterTest, DeviceThatIsKeptButNotUsedIsTakenAtOnce) {
  Arbiter arbiter(Clock::Real());
  const auto first = GateOf(&arbiter, 1);
  const auto second = GateOf(&arbiter, 2);
  first->Enter();
  first->Leave();
  second->Enter();
  EXPECT_FALSE(first->TryEnter());
  second->Leave();
}

// Two executors that always have work, on a fake clock.
class ContendedTest : public testing::Test {
 protected:
  ContendedTest() {
    for (uint64_t number = 1; number <= 2; ++number) {
      Arbiter::Seat seat = arbiter_.Add(number).value();
      words_.push_back(TurnWord::Map(seat.word.get()).value());
      gates_.push_back(std::make_unique<SharedTurnGate>(
          TurnWord::Map(seat.word.get()).value(), std::move(seat.event)));
    }
  }

  // Waits until one has the device and the other one waits, and returns which.
  size_t Served() {
    for (Patience patience;; patience.Yield()) {
      for (size_t i = 0; i < 2; ++i) {
        if (words_[i].state() == kTurnAsked) return i;
      }
    }
  }
  // Has the executor that is served end its turn after a second, and returns
  // which it was.
  size_t ServeOne() {
    const size_t served = Served();
    clock_.Advance(absl::Seconds(1));
    gates_[served]->Yield();
    return served;
  }

  FakeClock clock_;
  Arbiter arbiter_{&clock_};
  std::vector<TurnWord> words_;
  std::vector<std::unique_ptr<SharedTurnGate>> gates_;
};

TEST_F(ContendedTest, TimeIsDividedByWeight) {
  arbiter_.SetWeight(2, 3);
  for (const auto& gate : gates_) gate->Yield();
  int heavy = 0;
  for (int i = 0; i < 40; ++i) heavy += ServeOne() == 1 ? 1 : 0;
  EXPECT_NEAR(heavy, 30, 1);
}

TEST_F(ContendedTest, AnOverdueTurnIsChargedByHalfToItsEnd) {
  gates_[0]->Enter();
  gates_[1]->Yield();
  for (Patience patience; words_[1].state() != kTurnInUse; patience.Yield()) {
    clock_.Advance(Arbiter::kPatience);
    arbiter_.Wake();
  }
  clock_.Advance(absl::Seconds(10));
  gates_[0]->Yield();
  int others = 0;
  while (ServeOne() == 1) ++others;
  EXPECT_GE(others, 5);
  EXPECT_LE(others, 8);
}

TEST_F(ContendedTest, AHolderThatEndsLeavesNoContentionBehind) {
  gates_[0]->Enter();
  gates_[1]->Yield();
  arbiter_.Wake();
  arbiter_.Remove(1);
  for (Patience patience; words_[1].state() != kTurnInUse;) patience.Yield();
  // It works alone for an hour.
  clock_.Advance(absl::Hours(1));
  arbiter_.Wake();
  EXPECT_EQ(arbiter_.overdue_turns(), 0u);
}

TEST(ArbiterTest, OneTurnAtATimeAndNobodyStarves) {
  Arbiter arbiter(Clock::Real());
  constexpr int kTurns = 2000;
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  std::vector<std::unique_ptr<SharedTurnGate>> gates;
  for (uint64_t number = 1; number <= 3; ++number) {
    gates.push_back(GateOf(&arbiter, number));
  }
  std::vector<std::thread> threads;
  for (const auto& gate : gates) {
    threads.emplace_back([&, gate = gate.get()] {
      for (int i = 0; i < kTurns; ++i) {
        if (!gate->TryEnter()) gate->Enter();
        if (++inside > 1) ++overlaps;
        --inside;
        gate->Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(arbiter.overdue_turns(), 0u);
}

TEST(ArbiterTest, EndOfTheHolderFreesTheDevice) {
  Arbiter arbiter(Clock::Real());
  const auto dead = GateOf(&arbiter, 1);
  const auto other = GateOf(&arbiter, 2);
  dead->Enter();
  std::thread waiting([&] { other->Enter(); });
  arbiter.Remove(1);
  waiting.join();
  other->Leave();
}

TEST(ArbiterTest, CancelledWaitEnds) {
  Arbiter arbiter(Clock::Real());
  const auto holder = GateOf(&arbiter, 1);
  const auto other = GateOf(&arbiter, 2);
  holder->Enter();
  std::thread waiting([&] {
    other->Enter();
    other->Leave();
  });
  other->Cancel();
  waiting.join();
  holder->Leave();
  ASSERT_TRUE(holder->TryEnter() || (holder->Enter(), true));
}

TEST(ArbiterTest, TurnThatTakesTooLongGoesOnBesideTheNext) {
  FakeClock clock;
  Arbiter arbiter(&clock);
  const auto slow = GateOf(&arbiter, 1);
  const auto other = GateOf(&arbiter, 2);
  slow->Enter();
  std::atomic<bool> entered{false};
  std::thread waiting([&] {
    other->Enter();
    entered = true;
  });
  for (Patience patience; !entered; patience.Yield()) {
    clock.Advance(absl::Milliseconds(100));
    // Any event makes the arbiter look at the clock.
    arbiter.SetWeight(2, 1);
    arbiter.Wake();
  }
  waiting.join();
  EXPECT_EQ(arbiter.overdue_turns(), 1u);
  // It gets in line like any other.
  slow->Leave();
  EXPECT_FALSE(slow->TryEnter());
  other->Leave();
  slow->Enter();
}

TEST(ArbiterTest, WordOfNonsenseKeepsNobodyOut) {
  FakeClock clock;
  Arbiter arbiter(&clock);
  Arbiter::Seat seat = arbiter.Add(1).value();
  const TurnWord word = TurnWord::Map(seat.word.get()).value();
  const auto other = GateOf(&arbiter, 2);
  word.state() = kTurnWanted;
  RaiseEvent(seat.event.get());
  for (Patience patience; word.state() != kTurnInUse;) patience.Yield();
  word.state() = 12345;
  EnterAndLeave(other.get(), &arbiter, &clock);
}

// Otherwise, the arbiter's next look at the word would end the supervisor.
TEST(ArbiterTest, WordCannotBeResized) {
  Arbiter arbiter(Clock::Real());
  const Arbiter::Seat seat = arbiter.Add(1).value();
  for (const off_t bytes : {0, 1, 1 << 20}) {
    EXPECT_EQ(ftruncate(seat.word.get(), bytes), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(seat.word.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  const auto other = GateOf(&arbiter, 2);
  other->Enter();
  other->Leave();
}

// With one end for both, an executor could take the event after the arbiter has
// seen it, and make the arbiter wait for it for ever.
TEST(ArbiterTest, ExecutorCannotTakeItsEventBack) {
  Arbiter arbiter(Clock::Real());
  Arbiter::Seat seat = arbiter.Add(1).value();
  ASSERT_EQ(fcntl(seat.event.get(), F_SETFL, 0), 0);
  RaiseEvent(seat.event.get());
  uint64_t taken = 0;
  EXPECT_EQ(read(seat.event.get(), &taken, sizeof(taken)), -1);
  EXPECT_EQ(errno, EBADF);
  const auto other = GateOf(&arbiter, 2);
  other->Enter();
  other->Leave();
}

TEST(ArbiterTest, ExecutorThatClosesItsEventHoldsUpNobody) {
  FakeClock clock;
  Arbiter arbiter(&clock);
  Arbiter::Seat seat = arbiter.Add(1).value();
  const TurnWord word = TurnWord::Map(seat.word.get()).value();
  word.state() = kTurnWanted;
  RaiseEvent(seat.event.get());
  for (Patience patience; word.state() != kTurnInUse;) patience.Yield();
  seat.event = Descriptor();
  const auto other = GateOf(&arbiter, 2);
  EnterAndLeave(other.get(), &arbiter, &clock);
}

}  // namespace
}  // namespace djinn::worker
