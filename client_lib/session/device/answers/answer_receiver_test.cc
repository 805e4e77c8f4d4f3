#include "client_lib/session/device/answers/answer_receiver.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/patience.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A stream that receives nothing by itself: a test says what a leader does.
class FakeStream final : public ClientStream {
 public:
  using Leadership = std::function<bool(absl::FunctionRef<bool()> done)>;

  explicit FakeStream(Leadership lead) : lead_(std::move(lead)) {}

  absl::string_view transport() const override { return "fake"; }
  void Start(ClientStreamReceiver*) override {}
  absl::Status Send(std::shared_ptr<const v1::ControlRequest>) override {
    return absl::OkStatus();
  }
  absl::Status SendBulk(uint64_t, uint64_t, SharedBytes) override {
    return absl::OkStatus();
  }
  void Close(absl::Status) override {}
  bool Lead(absl::FunctionRef<bool()> done, absl::Duration) override {
    return lead_(done);
  }
  void Reclaim() override { ++reclaims_; }

  int reclaims() const { return reclaims_; }

 private:
  const Leadership lead_;
  std::atomic<int> reclaims_{0};
};

class AnswerReceiverTest : public testing::Test {
 protected:
  // Returns the stream, which is connected and lets leaders do `lead`.
  FakeStream* Connect(FakeStream::Leadership lead) {
    auto stream = std::make_unique<FakeStream>(std::move(lead));
    FakeStream* const connected = stream.get();
    receiver_.Begin(std::move(stream));
    receiver_.SetConnected(true);
    return connected;
  }
  // Waits for the answer as the session's threads do.
  void AwaitAnswer(bool may_lead) {
    const Deadline deadline(Patience::kLong);
    MutexLock lock(&mu_);
    while (!answered_ && !deadline.passed()) {
      ++waits_;
      receiver_.WaitOrReceive(
          &mu_, &changed_, [this] { return answered_; }, deadline, may_lead);
    }
    EXPECT_TRUE(answered_);
  }
  // Acts as a callback of the stream.
  void Answer() {
    MutexLock lock(&mu_);
    answered_ = true;
    changed_.SignalAll();
  }

  // Expects that a leader that ends reclaims the stream's thread for a
  // follower. If it is `refused`, its stream refuses it, and its answer is
  // there.
  void ExpectFollowersReclaim(bool refused) {
    std::atomic<bool> leads{false}, ends{false};
    FakeStream* const stream = Connect([&](absl::FunctionRef<bool()>) {
      leads = true;
      for (Patience patience; !ends;) patience.Yield();
      return !refused;
    });
    Mutex mu;
    CondVar changed;
    std::thread leader([&] {
      MutexLock lock(&mu);
      receiver_.WaitOrReceive(
          &mu, &changed, [&] { return refused; }, Deadline(Patience::kLong),
          /*may_lead=*/true);
    });
    for (Patience patience; !leads;) patience.Yield();
    bool waits = false;
    std::thread follower([&] {
      MutexLock lock(&mu_);
      while (!answered_) {
        receiver_.WaitOrReceive(
            &mu_, &changed_,
            [&] {
              waits = true;
              return answered_;
            },
            Deadline(Patience::kLong), /*may_lead=*/false);
      }
    });
    for (Patience patience;; patience.Yield()) {
      MutexLock lock(&mu_);
      if (waits) break;
    }
    // The follower trusted the leader.
    EXPECT_EQ(stream->reclaims(), 0);
    ends = true;
    leader.join();
    EXPECT_GE(stream->reclaims(), 1);
    Answer();
    follower.join();
  }

  AnswerReceiver receiver_;
  Mutex mu_;
  CondVar changed_;
  bool answered_ = false;
  int waits_ = 0;
};

TEST_F(AnswerReceiverTest, WaitingThreadReceivesItsAnswerWithoutASleep) {
  FakeStream* const stream = Connect([&](absl::FunctionRef<bool()> done) {
    EXPECT_TRUE(receiver_.led());
    EXPECT_FALSE(done());
    Answer();
    EXPECT_TRUE(done());
    return true;
  });
  AwaitAnswer(/*may_lead=*/true);
  EXPECT_EQ(waits_, 1);
  EXPECT_FALSE(receiver_.led());
  // No follower needs the stream's own thread.
  EXPECT_EQ(stream->reclaims(), 0);
}

TEST_F(AnswerReceiverTest, FollowerWithoutALeaderRecallsTheStreamsThread) {
  FakeStream* const stream = Connect([](absl::FunctionRef<bool()>) {
    ADD_FAILURE() << "a thread leads that must not";
    return true;
  });
  std::thread callback([&] {
    for (Patience patience; stream->reclaims() == 0;) patience.Yield();
    Answer();
  });
  AwaitAnswer(/*may_lead=*/false);
  callback.join();
  EXPECT_FALSE(receiver_.led());
}

TEST_F(AnswerReceiverTest, ThreadThatTheStreamRefusesFollows) {
  std::atomic<int> refusals{0};
  FakeStream* const stream = Connect([&](absl::FunctionRef<bool()>) {
    ++refusals;
    return false;
  });
  std::thread callback([&] {
    for (Patience patience; stream->reclaims() == 0;) patience.Yield();
    Answer();
  });
  AwaitAnswer(/*may_lead=*/true);
  callback.join();
  EXPECT_GE(refusals, 1);
}

TEST_F(AnswerReceiverTest, ReturningLeaderRecallsTheStreamsThreadForFollowers) {
  ExpectFollowersReclaim(/*refused=*/false);
}

// Another thread received the leader's answer meanwhile.
TEST_F(AnswerReceiverTest, RefusedLeaderRecallsTheStreamsThreadForFollowers) {
  ExpectFollowersReclaim(/*refused=*/true);
}

TEST_F(AnswerReceiverTest, FollowerWaitsNoLongerThanTheDeadline) {
  FakeClock clock;
  MutexLock lock(&mu_);
  receiver_.WaitOrReceive(
      &mu_, &changed_, [] { return false; },
      Deadline(absl::ZeroDuration(), &clock), /*may_lead=*/true);
  // No thread leads without a stream.
  EXPECT_FALSE(receiver_.led());
}

TEST_F(AnswerReceiverTest, EndWaitsForUsersUntilTheDeadline) {
  FakeClock clock;
  FakeStream* const stream =
      Connect([](absl::FunctionRef<bool()>) { return true; });
  EXPECT_EQ(receiver_.EnterConnected(), stream);
  receiver_.SetConnected(false);
  EXPECT_EQ(receiver_.EnterConnected(), nullptr);
  std::unique_ptr<ClientStream> ended;
  EXPECT_FALSE(receiver_.End(Deadline(absl::ZeroDuration(), &clock), &ended));
  EXPECT_EQ(ended, nullptr);
  EXPECT_EQ(receiver_.stream(), stream);
  std::thread user([&] { receiver_.Leave(); });
  EXPECT_TRUE(receiver_.End(Deadline(Patience::kLong), &ended));
  user.join();
  EXPECT_EQ(ended.get(), stream);
  EXPECT_EQ(receiver_.stream(), nullptr);
}

TEST_F(AnswerReceiverTest, RecallNeedsAConnectedStream) {
  receiver_.Reclaim();
  FakeStream* const stream =
      Connect([](absl::FunctionRef<bool()>) { return true; });
  receiver_.Reclaim();
  EXPECT_EQ(stream->reclaims(), 1);
  receiver_.SetConnected(false);
  receiver_.Reclaim();
  EXPECT_EQ(stream->reclaims(), 1);
}

}  // namespace
}  // namespace djinn
