// Tests that devices recover at a worker that has memory for what they hold.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/hash/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLarge = 3 << 20;

class RoomTest : public DeviceTest {
 protected:
  explicit RoomTest(SessionOptions options = Recovering())
      : DeviceTest(std::move(options)) {
    // A device that leaves its worker may come back to it.
    for (const int worker : {0, 1, 2}) {
      cluster_.worker(worker).Set(&FakeScript::begins_anew, true);
    }
  }

  StoragePtr Computed(const StoragePtr& x) {
    StoragePtr result = device_->NewStorage(8);
    EXPECT_TRUE(
        Record(*device_, 0, MakeCall(1, {{x, kReads}, {result, kCreates}}))
            .ok());
    return result;
  }
  // Makes the next run there fail for lack of memory.
  void FailNextRun(int worker) {
    cluster_.worker(worker).Set(&FakeScript::run_failure, "DEVICE_MEMORY");
    cluster_.worker(worker).Set(&FakeScript::fail_next_run, 9);
  }
  // The first worker's process ends. The next lease is of worker 1.
  void LoseFirst() {
    cluster_.coordinator().PlaceElsewhere();
    cluster_.worker(0).Restart(/*other_incarnation=*/true);
  }
  std::string WorkerId() { return device_->Placement()->worker_id; }
};

TEST_F(RoomTest, TheLeaseRequestSaysWhatIsHeld) {
  const std::string bytes = Pattern(kLarge);
  const StoragePtr x = Uploaded(bytes);
  const StoragePtr y = Computed(Uploaded("12345678"));
  ASSERT_TRUE(device_->Synchronize().ok());
  LoseFirst();
  EXPECT_EQ(*ReadAll(x), bytes);
  const std::vector<v1::LeaseRequest> requests =
      cluster_.coordinator().lease_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].needed_bytes(), 0u);
  ASSERT_EQ(requests[1].contents_size(), 1);
  const ContentHash hash = HashContent(bytes.data(), bytes.size());
  EXPECT_EQ(requests[1].contents(0).hash_high(), hash.high);
  EXPECT_EQ(requests[1].contents(0).hash_low(), hash.low);
  EXPECT_EQ(requests[1].contents(0).size_bytes(), kLarge);
  // The storages of the two small values.
  EXPECT_EQ(requests[1].needed_bytes(), 16u);
}

TEST_F(RoomTest, AWorkerIsAskedForMemoryAlthoughNoneIsLargeEnough) {
  const StoragePtr x = Uploaded(Pattern(kLarge));
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.coordinator().RefuseLeases(
      MakeError(absl::StatusCode::kFailedPrecondition, "TOO_LARGE", "none is"));
  LoseFirst();
  // With the contents and without them, each time.
  for (const Patience patience;
       cluster_.coordinator().lease_requests().size() < 5;) {
    patience.Yield();
  }
  cluster_.coordinator().RefuseLeases(absl::OkStatus());
  EXPECT_TRUE(ReadAll(x).ok());
  const v1::LeaseRequest request = cluster_.coordinator().lease_requests()[2];
  EXPECT_EQ(request.contents_size(), 0);
  EXPECT_EQ(request.needed_bytes(), kLarge);
}

TEST_F(RoomTest, AWorkerThatGivesTheSessionLessMemoryIsLeftForAnother) {
  const StoragePtr x = Uploaded(Pattern(kLarge));
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.worker(1).Set(&FakeScript::memory_bytes, kLarge - 1);
  cluster_.worker(2).Set(&FakeScript::memory_bytes, kLarge);
  LoseFirst();
  EXPECT_TRUE(ReadAll(x).ok());
  EXPECT_EQ(WorkerId(), "w2");
  EXPECT_TRUE(cluster_.worker(1).seen().received.empty());
}

TEST_F(RoomTest, AnUploadThatIsRefusedGoesToAnotherWorker) {
  const std::string bytes = Pattern(kLarge);
  const StoragePtr x = Uploaded(bytes);
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.worker(1).Set(&FakeScript::transfers,
                         FakeScript::Transfers::kRefuse);
  LoseFirst();
  EXPECT_EQ(*ReadAll(x), bytes);
  EXPECT_EQ(WorkerId(), "w2");
  // The worker that refused is well.
  EXPECT_THAT(cluster_.coordinator().returned_leases(),
              ElementsAre("lease-0", "lease-0.away-1"));
}

TEST_F(RoomTest, AnUploadUnderWayThatIsRefusedGoesToAnotherWorker) {
  ASSERT_TRUE(ReadAll(Uploaded("12345678")).ok());
  cluster_.worker(0).Pause();
  cluster_.worker(1).Set(&FakeScript::transfers,
                         FakeScript::Transfers::kRefuse);
  const std::string bytes = Pattern(kLarge);
  StoragePtr x;
  std::thread uploads([&] { x = Uploaded(bytes); });
  cluster_.worker(0).WaitWaiting(1);
  LoseFirst();
  uploads.join();
  EXPECT_EQ(*ReadAll(x), bytes);
  EXPECT_EQ(WorkerId(), "w2");
  EXPECT_EQ(cluster_.coordinator().AskLineage().devices(0).obstacle(), "");
}

TEST_F(RoomTest, ARunThatLacksMemoryInTheReplayIsExecutedElsewhere) {
  const StoragePtr y = Computed(Uploaded("12345678"));
  ASSERT_TRUE(device_->Synchronize().ok());
  FailNextRun(1);
  LoseFirst();
  EXPECT_EQ(ReadAll(y).status(), absl::OkStatus());
  EXPECT_EQ(WorkerId(), "w2");
  EXPECT_TRUE(session_->RootErrors().empty());
}

TEST_F(RoomTest, ARunThatLackedMemoryBeforeFailsAgain) {
  FailNextRun(0);
  FailNextRun(1);
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = Computed(x);
  EXPECT_FALSE(ReadAll(y).ok());
  LoseFirst();
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_FALSE(ReadAll(y).ok());
  EXPECT_EQ(WorkerId(), "w1");
  EXPECT_EQ(session_->statistics().recoveries, 1);
}

TEST_F(RoomTest, ARunAfterTheReplayFailsWithoutALoss) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  LoseFirst();
  ASSERT_TRUE(ReadAll(x).ok());
  FailNextRun(1);
  EXPECT_FALSE(ReadAll(Computed(x)).ok());
  EXPECT_EQ(session_->statistics().recoveries, 1);
}

class TimedRoomTest : public RoomTest {
 protected:
  static SessionOptions Timed() {
    SessionOptions options = Recovering();
    options.clock = &time_;
    return options;
  }
  TimedRoomTest() : RoomTest(Timed()) {}

  static inline FakeClock time_;
};

TEST_F(TimedRoomTest, WithoutAWorkerThatHasTheMemoryTheDeviceIsLost) {
  const StoragePtr x = Uploaded(Pattern(kLarge));
  ASSERT_TRUE(ReadAll(x).ok());
  for (const int worker : {0, 1, 2}) {
    cluster_.worker(worker).Set(&FakeScript::transfers,
                                FakeScript::Transfers::kRefuse);
  }
  const absl::Duration began = time_.Monotonic();
  Lose();
  absl::Status lost;
  WhileTimePasses(&time_, [&] { lost = ReadAll(x).status(); });
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("lacks memory for the replay"));
  EXPECT_GE(time_.Monotonic() - began, absl::Seconds(30));
}

}  // namespace
}  // namespace djinn
