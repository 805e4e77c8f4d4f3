// Threads that receive from a stream by themselves.
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/transport/shared_memory/testing.h"
#include "gtest/gtest.h"

namespace djinn::shared_memory {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

// Knows in which thread its messages came.
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

class AttendanceTest : public testing::Test {
 protected:
  AttendanceTest() {
    pair_.client->Start(&client_);
    pair_.worker->Start(&worker_);
  }
  // The worker's next response comes in this thread.
  void Borrow() {
    const auto is_here = [this, before = client_.count()] {
      return client_.count() > before;
    };
    // Until the stream's thread has lent what it does.
    while (!pair_.client->Attend([] { return true; }, kLong)) {
      const size_t before = client_.count();
      pair_.worker->Send(Response(1));
      client_.WaitMessages(before + 1);
    }
    pair_.worker->Send(Response(1));
    while (!pair_.client->Attend(is_here, kLong)) {
    }
  }

  Reader client_;
  Worker worker_;
  Pair pair_;
};

TEST_F(AttendanceTest, TheStreamsThreadReceivesUntilSomebodyWants) {
  pair_.worker->Send(Response(1));
  client_.WaitMessages(1);
  EXPECT_FALSE(client_.came_here());
  EXPECT_FALSE(pair_.client->Attend([] { return false; }, kLong));
}

TEST_F(AttendanceTest, WhoeverWaitsReceivesByItself) {
  Borrow();
  size_t here = 0;
  for (size_t i = 0; i < 1000; ++i) {
    const size_t before = client_.count();
    ASSERT_TRUE(pair_.client->Send(Request(i)).ok());
    worker_.WaitMessages(i + 1);
    pair_.worker->Send(Response(i));
    // Where the stream's thread took over meanwhile, it receives.
    if (pair_.client->Attend([&] { return client_.count() > before; }, kLong)) {
      here += client_.came_here();
    } else {
      client_.WaitMessages(before + 1);
    }
  }
  EXPECT_GT(here, 0);
}

TEST_F(AttendanceTest, WhatNobodyAttendsToIsReceivedAllTheSame) {
  Borrow();
  const size_t before = client_.count();
  for (int i = 0; i < 100; ++i) pair_.worker->Send(Response(1));
  client_.WaitMessages(before + 100);
  EXPECT_FALSE(client_.came_here());
}

TEST_F(AttendanceTest, OneAtATime) {
  std::atomic<bool> over{false};
  std::thread other;
  const auto attends = [&] {
    std::atomic<bool> inside{false};
    other = std::thread([&] {
      while (!over && !pair_.client->Attend(
                          [&] {
                            inside = true;
                            return over.load();
                          },
                          kLong)) {
        pair_.worker->Send(Response(1));
      }
    });
    while (!inside) std::this_thread::yield();
  };
  attends();
  EXPECT_FALSE(pair_.client->Attend([] { return true; }, kLong));
  over = true;
  pair_.client->Recall();
  other.join();
}

TEST_F(AttendanceTest, PatienceEnds) {
  Borrow();
  while (!pair_.client->Attend([] { return false; }, absl::Milliseconds(1))) {
    Borrow();
  }
}

TEST_F(AttendanceTest, IsEndedByRecallAndByTheEndOfTheStream) {
  Borrow();
  std::thread recalls;
  bool received = true;
  std::atomic<bool> asked{false};
  const auto never = [&] {
    asked = true;
    return false;
  };
  recalls = std::thread([&] {
    while (!asked) std::this_thread::yield();
    pair_.client->Recall();
  });
  received = pair_.client->Attend(never, kLong);
  asked = true;
  recalls.join();
  EXPECT_FALSE(received);

  Borrow();
  asked = false;
  std::thread closes([&] {
    while (!asked) std::this_thread::yield();
    pair_.worker->Close(
        MakeError(absl::StatusCode::kUnavailable, "DRAINING", "enough"));
  });
  received = pair_.client->Attend(never, kLong);
  asked = true;
  closes.join();
  EXPECT_FALSE(received);
  EXPECT_EQ(ErrorReason(client_.WaitClosed()), "DRAINING");
  EXPECT_FALSE(pair_.client->Attend(never, kLong));
}

// Whatever waits for room is written by whoever receives.
TEST_F(AttendanceTest, ABorrowedStreamSendsMoreThanTheRingHolds) {
  Borrow();
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(pair_.client->Send(Request(i, 3000)).ok());
  }
  worker_.WaitMessages(200);
}

// Both ends attend, as the reading thread and the worker's executor do.
TEST_F(AttendanceTest, BothEndsMayBeAttended) {
  constexpr uint64_t kRounds = 2000;
  std::thread executor([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      const auto came = [&] { return worker_.count() >= i; };
      if (!pair_.worker->Attend(came, kLong)) worker_.WaitMessages(i);
      pair_.worker->Send(Response(i));
    }
  });
  for (uint64_t i = 1; i <= kRounds; ++i) {
    ASSERT_TRUE(pair_.client->Send(Request(i)).ok());
    const auto came = [&] { return client_.count() >= i; };
    if (!pair_.client->Attend(came, kLong)) client_.WaitMessages(i);
  }
  executor.join();
}

TEST(AttendanceOfTheDeadTest, APeerThatIsGoneIsNoticed) {
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
  // Until the thread has lent its part.
  while (!stream->Attend([] { return true; }, kLong)) {
    const size_t before = client.count();
    writer.Write({}, Response(1)->SerializeAsString());
    peer->region.sleep(SharedSide::kClient)->store(kAwake);
    send(peer->socket.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    client.WaitMessages(before + 1);
  }
  peer.reset();
  while (stream->Attend([] { return false; }, absl::Milliseconds(1))) {
  }
  EXPECT_EQ(client.WaitClosed().message(), "the worker went away");
}

}  // namespace
}  // namespace djinn::shared_memory
