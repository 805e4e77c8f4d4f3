// Tests the window: which threads wait, and that none waits for ever.
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(WindowTest, AFullWindowTimesOutWithoutEffect) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(4);
  FakeClock clock;
  FakeCluster cluster(limits);
  const auto [session, device] =
      cluster.OpenDevice(OptionsWith(&clock, absl::Seconds(5)));
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  // The graph is defined now, so that each further call is one message. The
  // issuing threads therefore wait for room, and the sender never does.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  cluster.worker().Pause();
  absl::Status status;
  int recorded = 1;
  // Two lanes that take turns seal at every call.
  WhileTimePasses(&clock, [&] {
    while (status.ok()) {
      status = Record(*device, recorded % 2, MakeCall(1, {{value, kWrites}}));
      if (status.ok()) ++recorded;
    }
  });
  EXPECT_EQ(ErrorReason(status), "WINDOW_FULL");
  cluster.worker().Resume();
  ASSERT_TRUE(device->Synchronize().ok());
  uint64_t writes = 0;
  for (const v1::Run& run : cluster.worker().seen().runs)
    writes += run.bindings(0).writes();
  EXPECT_EQ(writes, static_cast<uint64_t>(recorded));
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
}

TEST(WindowTest, ARunLeavesWithTheReadBehindIt) {
  FakeCluster cluster;
  cluster.SendTogether();
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  // Defines the graph, too.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  const size_t before = cluster.groups().size();
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  ASSERT_GT(cluster.groups().size(), before);
  EXPECT_EQ(cluster.groups()[before], 2u);
}

TEST(WindowTest, MessagesSentTogetherKeepToTheWindow) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(3);
  FakeCluster cluster(limits);
  cluster.SendTogether();
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  uint64_t recorded = 0;
  for (; recorded < 200; ++recorded) {
    // Two lanes that take turns seal at every call.
    ASSERT_TRUE(Record(*device, static_cast<uint32_t>(recorded % 2),
                       MakeCall(1, {{value, kWrites}}))
                    .ok());
  }
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  uint64_t writes = 0;
  for (const v1::Run& run : cluster.worker().seen().runs) {
    writes += run.bindings(0).writes();
  }
  EXPECT_EQ(writes, recorded);
  for (const size_t messages : cluster.groups()) EXPECT_LE(messages, 3u);
}

TEST(WindowTest, AWorkerThatStandsStillIsGivenUp) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(1);
  FakeClock clock;
  FakeCluster cluster(limits);
  const auto [session, device] =
      cluster.OpenDevice(OptionsWith(&clock, absl::Seconds(5)));
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  // A graph and its run: the second message waits for the first.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(Record(*device, 1, MakeCall(1, {{value, kWrites}})).ok());
  cluster.worker().WaitWaiting(1);
  WhileTimePasses(&clock,
                  [&] { EXPECT_FALSE(cluster.worker().WaitClosed().ok()); });
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("no progress for"), std::string::npos);
}

// A device whose worker makes no progress.
class StandstillTest : public testing::Test {
 protected:
  StandstillTest() : cluster_(Narrow()), session_(cluster_.Open(Options())) {
    cluster_.coordinator().PlaceElsewhere();
    cluster_.worker(2).Set(&FakeScript::begins_anew, true);
    EXPECT_TRUE(ReadByte(*device_, 0, x_).ok());
  }
  static v1::SessionLimits Narrow() {
    v1::SessionLimits limits = FakeWorker::DefaultLimits();
    limits.set_max_outstanding(2);
    return limits;
  }
  SessionOptions Options() {
    // About a second of real time, in which a worker that is only slow on a
    // busy machine makes progress.
    SessionOptions options = OptionsWith(&clock_, absl::Seconds(100));
    options.connect_timeout = absl::Hours(1);
    options.recovers = true;
    return options;
  }
  // Returns the result of a call in a run of its own.
  StoragePtr Called(int op, uint32_t lane) {
    StoragePtr result = device_->NewStorage(8);
    EXPECT_TRUE(
        Record(*device_, lane, MakeCall(op, {{x_, kReads}, {result, kCreates}}))
            .ok());
    return result;
  }
  // Reads the value, however long that takes.
  absl::Status AwaitValue(const StoragePtr& value) {
    absl::Status status = ReadByte(*device_, 0, value);
    while (ErrorReason(status) == "OPERATION_TIMEOUT" ||
           ErrorReason(status) == "WINDOW_FULL") {
      status = ReadByte(*device_, 0, value);
    }
    return status;
  }

  FakeClock clock_;
  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_ = *session_->Device(0);
  const StoragePtr x_ = device_->NewStorage(8);
};

TEST_F(StandstillTest, AnotherWorkerGoesOn) {
  cluster_.worker(0).Pause();
  const StoragePtr y = Called(1, 0);
  const StoragePtr z = Called(2, 1);
  WhileTimePasses(&clock_, [&] {
    EXPECT_EQ(AwaitValue(z), absl::OkStatus());
    EXPECT_EQ(AwaitValue(y), absl::OkStatus());
  });
  EXPECT_NE(device_->Placement()->worker_id, "w0");
}

TEST_F(StandstillTest, ARunThatHangsAtTwoWorkersIsGivenUp) {
  for (const int worker : {0, 1, 2}) {
    cluster_.worker(worker).Set(&FakeScript::held_operator, "test::op7");
  }
  const StoragePtr y = Called(7, 0);
  const StoragePtr z = Called(2, 1);
  WhileTimePasses(&clock_, [&] {
    EXPECT_EQ(AwaitValue(z), absl::OkStatus());
    EXPECT_EQ(ErrorReason(AwaitValue(y)), "RUN_KILLS_WORKERS");
  });
}

TEST(WindowTest, AMessageLargerThanTheWindowIsSaidAndNotSent) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding_bytes(1 << 16);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(
      Record(*device, 0,
             MakeCall(1, {{value, kWrites}}, std::vector<double>(20000, 0.5)))
          .ok());
  const absl::Status status = device->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "MESSAGE_TOO_LARGE") << status;
}

TEST(WindowTest, AFullWindowOpensWithProgress) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(2);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Record(*device, i % 2, MakeCall(1, {{value, kWrites}})).ok());
  }
  ASSERT_TRUE(device->Synchronize().ok());
}

TEST(WindowTest, ThreadsThatTakeEachOthersRoomDoNotTimeOut) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(1);
  FakeCluster cluster(limits);
  // Its time stands still, so that no deadline passes.
  FakeClock clock;
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      const StoragePtr storage = device->NewStorage(8);
      for (int i = 0; i < 500; ++i) {
        const absl::Status status =
            device->Upload(lane, storage.get(), {"12345678", nullptr});
        ASSERT_TRUE(status.ok()) << status;
      }
      Drop(storage);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WindowTest, RandomSchedulesOfSeveralThreadsKeepTheOrder) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(8);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  std::vector<StoragePtr> shared;
  for (int i = 0; i < 4; ++i) shared.push_back(device->NewStorage(8));
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      std::minstd_rand random(lane + 1);
      for (int i = 0; i < 400; ++i) {
        const StoragePtr& a = shared[random() % 4];
        const StoragePtr& b = shared[random() % 4];
        switch (random() % 16) {
          case 0:
            ASSERT_TRUE(ReadByte(*device, lane, a).ok());
            break;
          case 1:
            ASSERT_TRUE(
                device->Upload(lane, a.get(), {"uploaded", nullptr}).ok());
            break;
          case 2:
            ASSERT_TRUE(device->Resize(lane, b.get(), 8).ok());
            break;
          default: {
            const StoragePtr fresh = device->NewStorage(8);
            ASSERT_TRUE(Record(*device, lane,
                               MakeCall(1, {{a, kReads}, {fresh, kCreates}}))
                            .ok());
            const uint8_t access = random() % 2 == 0 ? kWrites : kOverwrites;
            ASSERT_TRUE(Record(*device, lane,
                               MakeCall(2, {{fresh, kReads}, {b, access}}))
                            .ok());
            Drop(fresh);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(cluster.worker().live_storages().size(), 4u);
}

TEST(WindowTest, OneMessageAtATimeIsEnoughForEverything) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(1);
  limits.set_max_graphs(2);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const size_t size = kBulkChunkBytes + 7;
  const StoragePtr shared = device->NewStorage(size);
  ASSERT_TRUE(device->Upload(0, shared.get(), {Pattern(size), nullptr}).ok());
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 2; ++lane) {
    threads.emplace_back([&, lane] {
      for (int i = 0; i < 40; ++i) {
        const StoragePtr fresh = device->NewStorage(8);
        ASSERT_TRUE(
            Record(*device, lane,
                   MakeCall(i % 5, {{shared, kReads}, {fresh, kCreates}}))
                .ok());
        ASSERT_TRUE(ReadByte(*device, lane, i % 8 == 0 ? shared : fresh).ok());
        if (i % 4 == 0) cluster.worker().EvictPlans();
        Drop(fresh);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Chance decides whether a graph was dropped while the threads used it. This
  // graph certainly was.
  const uint64_t before = session->statistics().needs_answered;
  for (int i = 0; i < 2; ++i) {
    const StoragePtr fresh = device->NewStorage(8);
    ASSERT_TRUE(
        Record(*device, 0, MakeCall(1, {{shared, kReads}, {fresh, kCreates}}))
            .ok());
    ASSERT_TRUE(ReadByte(*device, 0, fresh).ok());
    cluster.worker().EvictPlans();
  }
  EXPECT_GT(session->statistics().needs_answered, before);
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
}

TEST(WindowTest, RepliesAreAcknowledgedWithNothingElseToSay) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  // Each run has another graph, which a reply answers, and nothing is read.
  const StoragePtr value = device->NewStorage(8);
  for (int i = 0; i < 600; ++i) {
    ASSERT_TRUE(Record(*device, i % 2, MakeCall(i, {{value, kWrites}})).ok());
  }
  EXPECT_TRUE(device->Synchronize().ok());
  // The worker stops at fewer unacknowledged replies than these.
  EXPECT_GE(cluster.worker().seen().runs.size(),
            2 * FakeWorker::kMaxUnacknowledged);
}

}  // namespace
}  // namespace djinn
