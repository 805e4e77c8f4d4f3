// Tests threads that receive from a stream by themselves.
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/transport/shared_memory/testing.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn::shared_memory {
namespace {

constexpr absl::Duration kLong = Patience::kLong;

// Records the thread in which its messages came.
class Reader : public Client {
 public:
  void OnMessage(v1::ControlResponse message) override {
    {
      MutexLock lock(&mu_);
      thread_ = std::this_thread::get_id();
    }
    Client::OnMessage(std::move(message));
  }
  bool came_here() {
    MutexLock lock(&mu_);
    return thread_ == std::this_thread::get_id();
  }

 private:
  std::thread::id thread_ ABSL_GUARDED_BY(mu_);
};

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() {
    pair_.client->Start(&client_);
    pair_.worker->Start(&worker_);
  }
  // Makes the stream's thread lend its role for a while.
  void Borrow() {
    EXPECT_TRUE(pair_.client->Lead([] { return true; }, kLong));
    const size_t before = client_.count();
    pair_.worker->Send(Response(1));
    client_.WaitMessages(before + 1);
  }

  Reader client_;
  Worker worker_;
  Pair pair_;
  std::atomic<bool> inside_{false};
};

TEST_F(LeaderTest, StreamsThreadReceivesUntilALeaderComes) {
  pair_.worker->Send(Response(1));
  client_.WaitMessages(1);
  EXPECT_FALSE(client_.came_here());
}

TEST_F(LeaderTest, WaitingThreadReceivesByItself) {
  size_t here = 0;
  for (size_t i = 0; i < 1000; ++i) {
    const auto came = [&] { return client_.count() > i; };
    ASSERT_TRUE(pair_.client->Send(Request(i)).ok());
    worker_.WaitMessages(i + 1);
    pair_.worker->Send(Response(i));
    for (Patience patience; !came(); patience.Left()) {
      ASSERT_TRUE(pair_.client->Lead(came, kLong));
    }
    here += client_.came_here();
  }
  EXPECT_GT(here, 0);
}

// The thread lends its role after any message.
TEST_F(LeaderTest, NextLeaderTakesOver) {
  const auto came = [&] { return client_.count() >= 2; };
  std::thread sender([&] {
    pair_.worker->Send(Response(1));
    client_.WaitMessages(1);
    // Until the other thread leads, the stream's own thread receives.
    for (Patience patience; !inside_;) patience.Yield();
    pair_.worker->Send(Response(2));
  });
  for (Patience patience; !came(); patience.Left()) {
    ASSERT_TRUE(pair_.client->Lead(
        [&] {
          inside_ = true;
          return came();
        },
        kLong));
  }
  sender.join();
  EXPECT_EQ(client_.count(), 2);
}

TEST_F(LeaderTest, MessageIsReceivedWithoutALeader) {
  Borrow();
  const size_t before = client_.count();
  for (int i = 0; i < 100; ++i) pair_.worker->Send(Response(1));
  client_.WaitMessages(before + 100);
  EXPECT_FALSE(client_.came_here());
}

TEST_F(LeaderTest, OneReceivesAndOneWaitsForIt) {
  std::atomic<bool> over{false};
  std::atomic<int> inside{0};
  const auto lead = [&] {
    bool counted = false;
    const auto done = [&] {
      if (!std::exchange(counted, true)) ++inside;
      return over.load();
    };
    // Lead() is refused while the thread that was offered the role has not
    // taken it.
    for (Patience patience; !over; patience.Left()) {
      pair_.client->Lead(done, kLong);
    }
  };
  std::thread one(lead);
  std::thread other(lead);
  // A message makes one of them the receiver, and the other one can wait.
  for (Patience patience; inside < 2; patience.Left()) {
    const size_t before = client_.count();
    pair_.worker->Send(Response(1));
    client_.WaitMessages(before + 1);
  }
  EXPECT_FALSE(pair_.client->Lead([] { return false; }, kLong));
  over = true;
  pair_.client->Wake();
  // The receiver leaves, and the other one sees that `done` is true.
  pair_.worker->Send(Response(1));
  one.join();
  other.join();
}

TEST_F(LeaderTest, WakeMakesLeadersCheckAgain) {
  for (const bool borrowed : {false, true}) {
    if (borrowed) Borrow();
    std::atomic<bool> over{false};
    std::thread waker([&] {
      for (Patience patience; !inside_;) patience.Yield();
      over = true;
      pair_.client->Wake();
    });
    inside_ = false;
    for (Patience patience; !over; patience.Left()) {
      EXPECT_TRUE(pair_.client->Lead(
          [&] {
            inside_ = true;
            return over.load();
          },
          kLong));
    }
    waker.join();
    inside_ = false;
  }
}

TEST_F(LeaderTest, PatienceEnds) {
  const auto never = [] { return false; };
  EXPECT_TRUE(pair_.client->Lead(never, absl::Milliseconds(1)));
  Borrow();
  EXPECT_TRUE(pair_.client->Lead(never, absl::Milliseconds(1)));
}

TEST_F(LeaderTest, EndsWithTheStream) {
  for (const bool borrowed : {false, true}) {
    Reader client;
    Worker worker;
    Pair pair;
    pair.client->Start(&client);
    pair.worker->Start(&worker);
    if (borrowed) {
      EXPECT_TRUE(pair.client->Lead([] { return true; }, kLong));
      pair.worker->Send(Response(1));
      client.WaitMessages(1);
    }
    std::atomic<bool> inside{false};
    std::thread closes([&] {
      for (Patience patience; !inside;) patience.Yield();
      pair.worker->Close(
          MakeError(absl::StatusCode::kUnavailable, "DRAINING", "enough"));
    });
    const auto never = [&] {
      inside = true;
      return false;
    };
    for (Patience patience; pair.client->Lead(never, kLong);) {
      patience.Left();
    }
    closes.join();
    EXPECT_EQ(ErrorReason(client.WaitClosed()), "DRAINING");
    EXPECT_FALSE(pair.client->Lead(never, kLong));
  }
}

TEST_F(LeaderTest, ReclaimEndsTheLead) {
  Borrow();
  std::thread reclaimer([&] {
    for (Patience patience; !inside_;) patience.Yield();
    pair_.client->Reclaim();
  });
  // True if the stream's thread had taken its role back before.
  pair_.client->Lead(
      [&] { return inside_.exchange(true) && client_.count() > 1; },
      absl::Seconds(1));
  reclaimer.join();
  const size_t before = client_.count();
  pair_.worker->Send(Response(1));
  client_.WaitMessages(before + 1);
  EXPECT_FALSE(client_.came_here());
}

// The receiving thread also writes the data that waits for room.
TEST_F(LeaderTest, ABorrowedStreamSendsMoreThanTheRingHolds) {
  Borrow();
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(pair_.client->Send(Request(i, 3000)).ok());
  }
  worker_.WaitMessages(200);
}

// Both ends lead, as the reading thread and the worker's executor do.
TEST_F(LeaderTest, BothEndsMayHaveLeaders) {
  constexpr uint64_t kRounds = 2000;
  std::thread executor([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      const auto came = [&] { return worker_.count() >= i; };
      for (Patience patience; !came(); patience.Left()) {
        EXPECT_TRUE(pair_.worker->Lead(came, kLong));
      }
      pair_.worker->Send(Response(i));
    }
  });
  for (uint64_t i = 1; i <= kRounds; ++i) {
    ASSERT_TRUE(pair_.client->Send(Request(i)).ok());
    const auto came = [&] { return client_.count() >= i; };
    for (Patience patience; !came(); patience.Left()) {
      EXPECT_TRUE(pair_.client->Lead(came, kLong));
    }
  }
  executor.join();
}

TEST(LeaderOfAGonePeerTest, SeesThatThePeerIsGone) {
  Reader client;
  Sockets sockets = MakeSockets();
  const auto stream = MakeSharedMemoryClientStream(
      AcceptFrom(std::move(sockets.client)), MakeEvent().value());
  std::optional<SharedConnection> peer =
      SharedConnection::Offer(std::move(sockets.worker), kSmall, kIncarnation)
          .value();
  stream->Start(&client);
  const SharedRegion::Ring ring = peer->region.control(SharedSide::kWorker);
  FrameRingWriter writer(ring.state, ring.data, ring.bytes);
  EXPECT_TRUE(stream->Lead([] { return true; }, kLong));
  writer.Write({}, Response(1)->SerializeAsString());
  peer->region.sleep(SharedSide::kClient)->store(kAwake);
  send(peer->socket.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  client.WaitMessages(1);
  peer.reset();
  for (Patience patience;
       stream->Lead([] { return false; }, absl::Milliseconds(1));) {
    patience.Left();
  }
  EXPECT_EQ(client.WaitClosed().message(), "the worker went away");
}

}  // namespace
}  // namespace djinn::shared_memory
