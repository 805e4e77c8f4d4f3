#include "common/transport/receiver_role.h"

#include <atomic>
#include <thread>

#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Holder = ReceiverRole::Holder;
using Turn = ReceiverRole::Turn;

constexpr absl::Duration kLong = Patience::kLong;

bool Never() { return false; }

class ReceiverRoleTest : public testing::Test {
 protected:
  // Acts as the connection's thread: it lends the role after every message.
  void StartThread() {
    thread_ = std::thread([this] {
      while (!over_) {
        while (!over_ && pending_ == 0) std::this_thread::yield();
        if (over_) return;
        --pending_;
        ++received_;
        role_.Lend();
      }
    });
  }
  ~ReceiverRoleTest() override {
    over_ = true;
    role_.End();
    if (thread_.joinable()) thread_.join();
  }

  // Waits until the thread has lent the role to this thread.
  void TakeRole() {
    Turn turn = Turn::kOver;
    for (Patience patience; turn != Turn::kTaken; patience.Left()) {
      turn = role_.Take(
          [this] {
            ++pending_;  // the thread receives something, and lends
            return false;
          },
          kLong);
      ASSERT_NE(turn, Turn::kRefused);
    }
  }

  ReceiverRole role_;
  std::atomic<int> pending_{0};
  std::atomic<int> received_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST_F(ReceiverRoleTest, TheThreadHasItUntilItReceivedSomething) {
  EXPECT_EQ(role_.Wake(), Holder::kThread);
  EXPECT_EQ(role_.Take(Never, absl::ZeroDuration()), Turn::kOver);
  EXPECT_EQ(role_.Wake(), Holder::kThread);
}

TEST_F(ReceiverRoleTest, CompletedReceiverTakesNoTurn) {
  EXPECT_EQ(role_.Take([] { return true; }, kLong), Turn::kOver);
}

TEST_F(ReceiverRoleTest, WaitingThreadTakesTheRoleBack) {
  StartThread();
  TakeRole();
  EXPECT_EQ(role_.Wake(), Holder::kLeader);
  const int received = received_;
  ++pending_;  // the thread does not check
  role_.Leave();
  // The thread takes the role back when no thread leads.
  for (Patience patience; received_ == received;) patience.Yield();
}

TEST_F(ReceiverRoleTest, ARecallBringsItBackAtOnce) {
  StartThread();
  TakeRole();
  EXPECT_FALSE(role_.reclaimed());
  EXPECT_EQ(role_.Reclaim(), Holder::kLeader);
  EXPECT_TRUE(role_.reclaimed());
  role_.Leave();
  for (Patience patience; role_.Wake() != Holder::kThread;) patience.Yield();
  EXPECT_FALSE(role_.reclaimed());
}

TEST_F(ReceiverRoleTest, ARecallWhileTheThreadHasItForbidsToLendOnce) {
  // This makes the role wanted.
  EXPECT_EQ(role_.Take(Never, absl::ZeroDuration()), Turn::kOver);
  EXPECT_EQ(role_.Reclaim(), Holder::kThread);
  role_.Lend();  // returns
  EXPECT_FALSE(role_.reclaimed());
  EXPECT_EQ(role_.Wake(), Holder::kThread);
}

TEST_F(ReceiverRoleTest, ANudgeEndsTheWait) {
  std::thread other;
  const Turn turn = role_.Take(
      [&] {
        // Other threads are refused while this one waits.
        EXPECT_EQ(role_.Take(Never, kLong), Turn::kRefused);
        other = std::thread([this] { role_.Wake(); });
        return false;
      },
      kLong);
  EXPECT_EQ(turn, Turn::kOver);
  other.join();
}

TEST_F(ReceiverRoleTest, WakesAreCountedForLeaders) {
  const uint64_t before = role_.wakes();
  role_.Wake();
  EXPECT_NE(role_.wakes(), before);
}

TEST_F(ReceiverRoleTest, TheEndRefusesWhoWaitsAndWhoComes) {
  std::thread other;
  const Turn turn = role_.Take(
      [&] {
        other = std::thread([this] { role_.End(); });
        return false;
      },
      kLong);
  EXPECT_EQ(turn, Turn::kRefused);
  other.join();
  EXPECT_EQ(role_.Take(Never, kLong), Turn::kRefused);
}

// Only one thread receives at a time, so the counter needs no lock.
TEST_F(ReceiverRoleTest, OneAtATime) {
  constexpr int kEach = 2000;
  int unguarded = 0;
  std::atomic<bool> over{false};
  std::thread thread([&] {
    while (!over) {
      ++unguarded;
      role_.Lend();
    }
    ++unguarded;
  });
  int here = 0;
  while (here < kEach) {
    Patience patience;
    while (role_.Take(Never, absl::Milliseconds(1)) != Turn::kTaken) {
      patience.Left();
    }
    ++unguarded;
    if (++here % 7 == 0) role_.Reclaim();
    role_.Leave();
  }
  over = true;
  role_.End();
  thread.join();
  EXPECT_GT(unguarded, kEach);
}

}  // namespace
}  // namespace djinn
