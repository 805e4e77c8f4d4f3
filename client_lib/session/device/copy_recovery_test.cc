// Tests copies between two virtual devices of which one loses its worker.
#include <algorithm>
#include <string>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::HasSubstr;

// Device 0 copies to device 1.
class CopyRecoveryTest : public DeviceTest {
 protected:
  explicit CopyRecoveryTest(SessionOptions options = Recovering())
      : DeviceTest(std::move(options)) {
    // A device that leaves its worker may come back to it.
    cluster_.worker(0).Set(&FakeScript::begins_anew, true);
    cluster_.worker(1).Set(&FakeScript::begins_anew, true);
  }

  // Returns a value that no upload made.
  StoragePtr Computed() {
    StoragePtr value = Uploaded("12345678");
    EXPECT_TRUE(Record(*device_, 0, MakeCall(1, {{value, kWrites}})).ok());
    return value;
  }
  StoragePtr Copied(const StoragePtr& source) {
    StoragePtr copy = there_->NewStorage(source->size_bytes());
    EXPECT_TRUE(there_->CopyFrom(0, copy.get(), source.get()).ok());
    return copy;
  }
  std::vector<v1::Offer> Offers() {
    EXPECT_TRUE(device_->Synchronize().ok());
    std::vector<v1::Offer> offers;
    for (const v1::Ordered& message : cluster_.worker(0).seen().received) {
      if (message.has_offer()) offers.push_back(message.offer());
    }
    return offers;
  }
  std::vector<v1::Pull> Pulls() {
    std::vector<v1::Pull> pulls;
    for (const v1::Ordered& message : cluster_.worker(1).seen().received) {
      if (message.install().has_pull()) {
        pulls.push_back(message.install().pull());
      }
    }
    return pulls;
  }
  template <typename Condition>
  static void Await(Condition holds) {
    for (const Patience patience; !holds();) patience.Yield();
  }

  std::shared_ptr<VirtualDevice> there_ = *session_->Device(1);
};

TEST_F(CopyRecoveryTest, TheSourceKeepsWhatItCopiedAsAStorageOfItsOwn) {
  const StoragePtr x = Computed();
  const std::string value = *ReadAll(x);
  const StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  const v1::Offer offer = Offers().at(0);
  EXPECT_NE(offer.storage(), x->id());
  EXPECT_EQ(cluster_.worker(0).contents(offer.storage()), value);
}

TEST_F(CopyRecoveryTest, ACopyThatIsDroppedIsDroppedAtItsSource) {
  const StoragePtr x = Computed();
  StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(cluster_.worker(0).live_storages().size(), 2u);
  Drop(std::move(y));
  // A further message brings the frees along.
  ASSERT_TRUE(ReadAll(*there_, Copied(x)).ok());
  Await([&] {
    return ReadAll(x).ok() && cluster_.worker(0).live_storages().size() == 2;
  });
}

TEST_F(CopyRecoveryTest, CopyOfAnUploadIsUploadedAgainAfterALoss) {
  // In a message, eager, and by hash.
  size_t storages = 0;
  for (const size_t size : {8, 100'000, 3'000'000}) {
    ++storages;
    const StoragePtr x = Uploaded(std::string(size, 'x'));
    ASSERT_TRUE(ReadAll(x).ok());
    // The fake worker fetches nothing, so its value must not be seen.
    const StoragePtr y = Copied(x);
    ASSERT_TRUE(there_->Synchronize().ok());
    // A further message brings the frees along.
    Await([&] {
      return ReadAll(x).ok() &&
             cluster_.worker(0).live_storages().size() == storages;
    });
    const size_t pulls = Pulls().size();
    ASSERT_TRUE(
        device_->Upload(0, x.get(), {std::string(size, 'z'), nullptr}).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
    Lose(1);
    ASSERT_EQ(ReadAll(*there_, y).status(), absl::OkStatus());
    EXPECT_EQ(cluster_.worker(1).contents(y->id()), std::string(size, 'x'));
    EXPECT_EQ(Pulls().size(), pulls);
  }
}

TEST_F(CopyRecoveryTest, ADestinationThatLosesItsWorkerFetchesTheSameValue) {
  const StoragePtr x = Computed();
  const std::string value = *ReadAll(x);
  const StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  // The source has another value by now.
  ASSERT_TRUE(device_->Upload(0, x.get(), {"abcdefgh", nullptr}).ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose(1);
  ASSERT_TRUE(ReadAll(*there_, y).ok());
  const std::vector<v1::Offer> offers = Offers();
  const std::vector<v1::Pull> pulls = Pulls();
  ASSERT_EQ(offers.size(), 2u);
  ASSERT_EQ(pulls.size(), 2u);
  EXPECT_EQ(offers[1].storage(), offers[0].storage());
  EXPECT_EQ(cluster_.worker(0).contents(offers[1].storage()), value);
  EXPECT_NE(offers[1].ticket(), offers[0].ticket());
  EXPECT_EQ(pulls[1].ticket(), offers[1].ticket());
}

TEST_F(CopyRecoveryTest, ASourceThatLosesItsWorkerKeepsTheCopyAtTheNextOne) {
  const StoragePtr x = Computed();
  const std::string value = *ReadAll(x);
  const StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose(0);
  EXPECT_EQ(*ReadAll(x), value);
  // The destination has its value, and stays.
  EXPECT_EQ(Pulls().size(), 1u);
  Lose(1);
  ASSERT_TRUE(ReadAll(*there_, y).ok());
  const v1::Offer offer = Offers().back();
  EXPECT_EQ(cluster_.worker(0).contents(offer.storage()), value);
  EXPECT_EQ(Pulls().back().ticket(), offer.ticket());
  EXPECT_EQ(Pulls().back().worker_incarnation(), FakeWorker::kIncarnation + 1);
}

TEST_F(CopyRecoveryTest, ADestinationLeavesAWorkerThatWaitsForALostSource) {
  const StoragePtr x = Computed();
  ASSERT_TRUE(device_->Synchronize().ok());
  ASSERT_TRUE(there_->Placement().ok());
  cluster_.worker(1).Pause();
  const StoragePtr y = Copied(x);
  cluster_.worker(1).WaitWaiting(1);
  Lose(0);
  Await([&] { return session_->statistics().recoveries == 2; });
  cluster_.worker(1).Resume();
  ASSERT_TRUE(ReadAll(*there_, y).ok());
  ASSERT_EQ(Pulls().size(), 1u);
  EXPECT_EQ(Pulls()[0].worker_incarnation(), FakeWorker::kIncarnation + 1);
  EXPECT_EQ(Pulls()[0].ticket(), Offers().back().ticket());
}

TEST(QueuedCopyRecoveryTest,
     AnOfferThatIsStillQueuedGetsTheTicketThatIsAskedFor) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(1);
  FakeCluster cluster(limits);
  cluster.worker(0).Set(&FakeScript::begins_anew, true);
  cluster.worker(1).Set(&FakeScript::begins_anew, true);
  const auto session = cluster.Open(Recovering());
  const auto device = *session->Device(0), other = *session->Device(1);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker(0).Pause();
  cluster.worker(1).Pause();
  // The definition of the graph fills the window, the run waits for room, and
  // the offer is behind it in the queue.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const StoragePtr copy = other->NewStorage(8);
  ASSERT_TRUE(other->CopyFrom(0, copy.get(), value.get()).ok());
  cluster.worker(0).WaitWaiting(1);
  cluster.worker(1).WaitWaiting(1);
  cluster.coordinator().NoteRestart();
  cluster.worker(0).Restart(/*other_incarnation=*/true);
  // The destination leaves its worker and asks for another offer.
  for (const Patience patience; session->statistics().recoveries < 2;) {
    patience.Yield();
  }
  cluster.worker(0).Resume();
  cluster.worker(1).Resume();
  EXPECT_TRUE(ReadByte(*device, 0, value).ok());
  EXPECT_TRUE(ReadByte(*other, 0, copy).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  std::vector<std::string> offered, pulled;
  for (const v1::Ordered& message : cluster.worker(0).seen().received) {
    if (message.has_offer()) offered.push_back(message.offer().ticket());
  }
  for (const v1::Ordered& message : cluster.worker(1).seen().received) {
    if (message.install().has_pull()) {
      pulled.push_back(message.install().pull().ticket());
    }
  }
  EXPECT_EQ(offered.size(), 1u);
  EXPECT_EQ(offered, pulled);
}

TEST_F(CopyRecoveryTest, BothDevicesMayLoseTheirWorkersAtOnce) {
  const StoragePtr x = Computed();
  const std::string value = *ReadAll(x);
  const StoragePtr y = Copied(x);
  const StoragePtr back = device_->NewStorage(8);
  ASSERT_TRUE(device_->CopyFrom(0, back.get(), y.get()).ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose(0);
  Lose(1);
  EXPECT_TRUE(ReadAll(*there_, y).ok());
  EXPECT_TRUE(ReadAll(back).ok());
  EXPECT_EQ(*ReadAll(x), value);
}

class TimedCopyRecoveryTest : public CopyRecoveryTest {
 protected:
  static SessionOptions Timed(FakeClock* clock) {
    SessionOptions options = Recovering();
    options.clock = clock;
    return options;
  }
  TimedCopyRecoveryTest() : CopyRecoveryTest(Timed(&time_)) {}

  static inline FakeClock time_;
};

TEST_F(TimedCopyRecoveryTest, AValueThatDidNotArriveIsFetchedOnceMore) {
  const StoragePtr x = Computed();
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, 7);
  cluster_.worker(1).Set(&FakeScript::pull_failure, "PULL_FAILED");
  const StoragePtr y = Copied(x);
  WhileTimePasses(&time_, [&] { EXPECT_TRUE(ReadAll(*there_, y).ok()); });
  EXPECT_EQ(Pulls().size(), 2u);
  EXPECT_EQ(Offers().size(), 2u);
}

TEST_F(TimedCopyRecoveryTest, AValueThatNeverArrivesFailsAndTheDeviceGoesOn) {
  const StoragePtr x = Computed();
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, 7);
  cluster_.worker(1).Set(&FakeScript::fails_every_pull, true);
  cluster_.worker(1).Set(&FakeScript::pull_failure, "PULL_FAILED");
  const StoragePtr y = Copied(x);
  WhileTimePasses(&time_, [&] {
    EXPECT_THAT(std::string(ReadAll(*there_, y).status().message()),
                HasSubstr("it did not work"));
  });
  const StoragePtr z = there_->NewStorage(8);
  ASSERT_TRUE(there_->Upload(0, z.get(), {"abcdefgh", nullptr}).ok());
  EXPECT_EQ(*ReadAll(*there_, z), "abcdefgh");
}

TEST_F(CopyRecoveryTest, ACopyWhoseSourceIsGoneFailsAndTheDeviceGoesOn) {
  const StoragePtr x = Computed();
  const StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.coordinator().EndLease("lease-0", "QUOTA_RECLAIMED");
  EXPECT_TRUE(ReadAll(*there_, y).ok());
  Lose(1);
  const absl::Status failed = ReadAll(*there_, y).status();
  EXPECT_EQ(ErrorReason(failed), "WORKER_LOST") << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("QUOTA_RECLAIMED"));
  const StoragePtr z = there_->NewStorage(8);
  ASSERT_TRUE(there_->Upload(0, z.get(), {"abcdefgh", nullptr}).ok());
  EXPECT_EQ(*ReadAll(*there_, z), "abcdefgh");
}

TEST_F(CopyRecoveryTest, AValueThatDivergesAtItsSourceIsNotShownElsewhere) {
  const StoragePtr x = Computed();
  // The fake worker's values depend on the numbers of messages, which change
  // when earlier messages are left out.
  for (int i = 0; i < 3; ++i) Drop(Uploaded("dropped."));
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(1, {{x, kReads}, {value, kCreates}})).ok());
  ASSERT_TRUE(ReadAll(value).ok());
  const StoragePtr y = Copied(value);
  ASSERT_TRUE(there_->Synchronize().ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose(0);
  EXPECT_EQ(ErrorReason(ReadAll(value).status()), "REPLAY_DIVERGED");
  // Its worker has the first value.
  EXPECT_TRUE(ReadAll(*there_, y).ok());
  Lose(1);
  EXPECT_EQ(ErrorReason(ReadAll(*there_, y).status()), "REPLAY_DIVERGED");
}

class ForgetfulCopyRecoveryTest : public CopyRecoveryTest {
 protected:
  static SessionOptions Forgetful() {
    SessionOptions options = Recovering();
    options.replay_memory = 64 << 10;
    options.replay_time = absl::Hours(1);  // no checkpoint makes up for it
    return options;
  }
  ForgetfulCopyRecoveryTest() : CopyRecoveryTest(Forgetful()) {}
};

TEST_F(ForgetfulCopyRecoveryTest, ACopyBeyondTheBudgetEndsWithTheWorker) {
  const StoragePtr x = device_->NewStorage(48 << 10);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{x, kCreates}})).ok());
  const StoragePtr y = Copied(x);
  ASSERT_TRUE(there_->Synchronize().ok());
  Lose(1);
  const absl::Status lost = ReadAll(*there_, y).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");
  EXPECT_THAT(std::string(lost.message()), HasSubstr("replay_memory"));
}

}  // namespace
}  // namespace djinn
