// Tests devices that migrate to another worker: the messages that both workers
// get, and what the program sees when something breaks on the way.
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"

namespace djinn {
namespace {

using Cut = FakeScript::Cut;

std::string Reason(const v1::MigrationOutcome& outcome) {
  return outcome.failure().reason();
}

class MigrationTest : public DeviceTest {
 protected:
  explicit MigrationTest(SessionOptions options = {})
      : DeviceTest(std::move(options)) {}

  void Write() {
    EXPECT_TRUE(Record(*device_, 0, MakeCall(1, {{value_, kWrites}})).ok());
  }
  // Makes sure that the device has a worker.
  void Begin() {
    Write();
    EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  }
  FakeWorker& here() { return cluster_.worker(0); }
  FakeWorker& there() { return cluster_.worker(1); }
  std::string WorkerOf(VirtualDevice& device) {
    return device.Placement()->worker_id;
  }

  const StoragePtr value_ = device_->NewStorage(8);
};

TEST_F(MigrationTest, CallsAfterAMigrationGoToTheNewWorker) {
  Begin();
  const v1::MigrationOutcome outcome =
      cluster_.coordinator().Migrate("lease-0", 1, 10);
  EXPECT_FALSE(outcome.has_failure()) << outcome.failure().message();
  EXPECT_EQ(outcome.to_lease_id(), "lease-10");
  EXPECT_EQ(outcome.moved_bytes(), 100u);
  // The stream's end tells the worker to forget everything.
  EXPECT_TRUE(here().WaitClosed().ok());
  EXPECT_TRUE(here().live_storages().empty());
  const size_t before = here().seen().received.size();
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(here().seen().received.size(), before);
  ASSERT_EQ(there().seen().runs.size(), 1u);
  // The storage was created and written here, and written there.
  EXPECT_EQ(there().seen().runs[0].bindings(0).storage(), value_->id());
  EXPECT_EQ(there().seen().runs[0].bindings(0).base_version(), 2u);
  EXPECT_EQ(WorkerOf(*device_), "w1");
  EXPECT_EQ(device_->Placement()->reason, "told to");
  EXPECT_EQ(session_->statistics().resumes, 0u);
  EXPECT_TRUE(session_->Close(absl::Seconds(10)).ok());
}

TEST_F(MigrationTest, ReadsBeforeAMigrationAreAnsweredByTheOldWorker) {
  Begin();
  here().Pause();
  Write();
  const srg::TensorView whole = WholeView(*value_.get());
  std::string bytes(8, '?'), later(8, '?');
  const auto read =
      *device_->StartRead(0, value_.get(), whole, bytes.data(), 8);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  const size_t before = here().seen().runs.size();
  // The calls of a thread that continues meanwhile.
  Write();
  const auto next =
      *device_->StartRead(0, value_.get(), whole, later.data(), 8);
  EXPECT_FALSE(read->Ready());
  here().Resume();
  EXPECT_FALSE(cluster_.coordinator().WaitOutcome().has_failure());
  EXPECT_TRUE(read->Wait(absl::Seconds(10)).ok());
  EXPECT_TRUE(next->Wait(absl::Seconds(10)).ok());
  EXPECT_EQ(here().seen().runs.size() + there().seen().runs.size(), before + 2);
  EXPECT_EQ(there().seen().runs.size(), 1u);
}

TEST_F(MigrationTest, NoUploadIsEagerWhileTheDeviceMigrates) {
  constexpr size_t kSize = 100'000;
  here().Set(&FakeScript::content_room, 1 << 20);
  there().Set(&FakeScript::content_room, 1 << 20);
  Begin();
  const auto upload = [&](char fill) {
    const std::string bytes(kSize, fill);
    const StoragePtr storage = device_->NewStorage(kSize);
    EXPECT_TRUE(device_->Upload(0, storage.get(), {bytes, nullptr}).ok());
    return storage;
  };
  const auto ways = [](const FakeWorker& worker) {
    std::string ways;
    for (const v1::Ordered& message : worker.seen().received) {
      if (message.install().has_content()) ways += 'c';
      if (message.install().has_transfer()) ways += 't';
    }
    return ways;
  };
  here().Pause();
  const StoragePtr before = upload('b');
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  // The room on the other worker is not known yet.
  StoragePtr meanwhile;
  std::thread program([&] { meanwhile = upload('m'); });
  here().Resume();
  EXPECT_FALSE(cluster_.coordinator().WaitOutcome().has_failure());
  program.join();
  const StoragePtr after = upload('a');
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(ways(here()), "c");
  EXPECT_EQ(ways(there()), "tc");
  EXPECT_TRUE(session_->Close(absl::Seconds(10)).ok());
}

TEST_F(MigrationTest, ThereAndBackAgain) {
  Begin();
  for (int i = 0; i < 6; ++i) {
    const std::string lease =
        i == 0 ? "lease-0" : absl::StrCat("lease-", 9 + i);
    const v1::MigrationOutcome outcome =
        cluster_.coordinator().Migrate(lease, 1 - i % 2, 10 + i);
    ASSERT_FALSE(outcome.has_failure()) << outcome.failure().message();
    Write();
    ASSERT_TRUE(ReadByte(*device_, 0, value_).ok());
  }
  EXPECT_EQ(WorkerOf(*device_), "w0");
}

TEST_F(MigrationTest, ARequestThatWasFollowedAlreadyReportsNothing) {
  Begin();
  EXPECT_FALSE(cluster_.coordinator().Migrate("lease-0", 1, 10).has_failure());
  // A failure would end the lease that the device uses.
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  const v1::MigrationOutcome next =
      cluster_.coordinator().Migrate("lease-10", 0, 11);
  EXPECT_EQ(next.to_lease_id(), "lease-11");
  EXPECT_FALSE(next.has_failure()) << next.failure().message();
}

TEST_F(MigrationTest, ARefusalLeavesItWhereItIs) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kRefuse);
  EXPECT_EQ(Reason(cluster_.coordinator().Migrate("lease-0", 1, 10)),
            "DEVICE_MEMORY");
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_TRUE(there().seen().runs.empty());
  EXPECT_EQ(WorkerOf(*device_), "w0");
  // A later migration may succeed.
  there().Restart(/*other_incarnation=*/false);
}

TEST_F(MigrationTest, AWorkerThatIsLostOnTheWayLeavesItWhereItIs) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  there().Break(absl::UnavailableError("gone"));
  EXPECT_TRUE(cluster_.coordinator().WaitOutcome().has_failure());
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(WorkerOf(*device_), "w0");
}

TEST_F(MigrationTest, ABrokenStreamOnTheWayIsTakenUpAgain) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  here().Break(absl::UnavailableError("cut"));
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(here().seen().resumes, 1);
}

TEST_F(MigrationTest, LossOfItsOwnWorkerDuringMigrationFailsTheDevice) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  here().Break(MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                         "the worker stops"));
  EXPECT_TRUE(cluster_.coordinator().WaitOutcome().has_failure());
  EXPECT_EQ(ErrorReason(ReadByte(*device_, 0, value_)), "WORKER_LOST");
}

class RecoveringMigrationTest : public MigrationTest {
 protected:
  static SessionOptions Recovering() {
    SessionOptions options;
    options.recovers = true;
    return options;
  }
  RecoveringMigrationTest() : MigrationTest(Recovering()) {}

  // Loses the device's own worker, and checks that the device goes on.
  void LoseHere() {
    Lose();
    EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
    EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
    EXPECT_EQ(WorkerOf(*device_), "w0");
    EXPECT_EQ(session_->statistics().recoveries, 1);
  }
};

TEST_F(RecoveringMigrationTest, LossBeforeItLeavesIsRecovered) {
  Begin();
  here().Pause();
  Write();
  std::string bytes(8, '?');
  const auto read = *device_->StartRead(
      0, value_.get(), WholeView(*value_.get()), bytes.data(), 8);
  here().WaitForRead();
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  Lose();
  here().Resume();
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
  EXPECT_TRUE(read->Wait(absl::Seconds(10)).ok());
  EXPECT_EQ(WorkerOf(*device_), "w0");
}

TEST_F(RecoveringMigrationTest, LossWhileItLeavesIsRecovered) {
  Begin();
  here().Pause();
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  here().WaitWaiting(1);  // Leave
  Lose();
  here().Resume();
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(WorkerOf(*device_), "w0");
  // A later migration succeeds.
  EXPECT_FALSE(cluster_.coordinator().Migrate("lease-0", 1, 11).has_failure());
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
}

TEST_F(RecoveringMigrationTest, LossOfBothWorkersIsRecovered) {
  cluster_.HookStreams().BeforeCleanClose([&] {
    cluster_.coordinator().EndLease("lease-10", "worker w1 is lost");
  });
  Begin();
  EXPECT_EQ(Reason(cluster_.coordinator().Migrate("lease-0", 1, 10)),
            "LEASE_ENDED");
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(session_->statistics().recoveries, 1);
}

TEST_F(RecoveringMigrationTest, LossAfterItLeftIsRecovered) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  Write();
  LoseHere();
}

TEST_F(MigrationTest, OffersOfOthersComeFirst) {
  Begin();
  here().Set(&FakeScript::refuse_to_let, 3);
  EXPECT_FALSE(cluster_.coordinator().Migrate("lease-0", 1, 10).has_failure());
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
}

TEST_F(MigrationTest, AClosingSessionStays) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  Write();
  const size_t before = here().seen().runs.size();
  EXPECT_TRUE(session_->Close(absl::Seconds(20)).ok());
  EXPECT_EQ(here().seen().runs.size(), before + 1);
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
}

TEST_F(MigrationTest, StorageReleasedDuringAMigrationIsFreedAtTheNewWorker) {
  std::vector<StoragePtr> many;
  for (uint64_t i = 0; i <= DeadList::kManyStorages; ++i) {
    many.push_back(device_->NewStorage(8));
    EXPECT_TRUE(
        Record(*device_, 0, MakeCall(1, {{many.back(), kWrites}})).ok());
  }
  Begin();
  here().Pause();
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  here().WaitWaiting(1);  // Leave
  for (const StoragePtr& storage : many) Drop(storage);
  std::string bytes(8, '?');
  const auto read = *device_->StartRead(
      0, value_.get(), WholeView(*value_.get()), bytes.data(), 8);
  here().Resume();
  EXPECT_FALSE(cluster_.coordinator().WaitOutcome().has_failure());
  EXPECT_TRUE(read->Wait(absl::Seconds(10)).ok());
  EXPECT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(there().live_storages(), std::set<uint64_t>{value_->id()});
}

TEST_F(MigrationTest,
       StorageReleasedBeforeADeclinedMigrationIsFreedAtTheOldWorker) {
  const StoragePtr other = device_->NewStorage(8);
  EXPECT_TRUE(Record(*device_, 0, MakeCall(1, {{other, kWrites}})).ok());
  Begin();
  here().Pause();
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  here().WaitWaiting(1);
  Drop(other);
  std::thread closes(
      [&] { EXPECT_TRUE(session_->Close(absl::Seconds(20)).ok()); });
  for (Patience patience; device_->graphs().Start(7).ok(); patience.Left()) {
    device_->graphs().Drop(7);
  }
  here().Resume();
  closes.join();
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "SESSION_BUSY");
  EXPECT_EQ(here().live_storages(), std::set<uint64_t>{value_->id()});
}

TEST_F(MigrationTest, AWorkerWithoutALeaseAnyMoreIsGivenUp) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  cluster_.coordinator().EndLease("lease-10", "worker w1 is lost");
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "LEASE_ENDED");
  Write();
  EXPECT_TRUE(ReadByte(*device_, 0, value_).ok());
  EXPECT_EQ(WorkerOf(*device_), "w0");
}

TEST(MigrationLeaseTest, LeaseThatEndsBeforeTheDeviceGoesOverFailsTheDevice) {
  FakeCluster cluster;
  cluster.HookStreams().BeforeCleanClose(
      [&] { cluster.coordinator().EndLease("lease-10", "worker w1 is lost"); });
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  // The device ends its old stream when the other worker has everything.
  EXPECT_EQ(Reason(cluster.coordinator().Migrate("lease-0", 1, 10)),
            "WORKER_LOST");
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(status, "worker"), "w1");
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "LEASE_ENDED");
  EXPECT_EQ(cluster.coordinator().returned_leases(),
            std::vector<std::string>{"lease-0"});
}

TEST_F(MigrationTest, ItDoesNotLeaveForAWorkerWithoutALeaseAnyMore) {
  Begin();
  here().Pause();
  Write();
  std::string bytes(8, '?');
  const auto read = *device_->StartRead(
      0, value_.get(), WholeView(*value_.get()), bytes.data(), 8);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  cluster_.coordinator().EndLease("lease-10", "worker w1 is lost");
  // The outcome comes although the device's own worker has unfinished messages.
  EXPECT_EQ(Reason(cluster_.coordinator().WaitOutcome()), "LEASE_ENDED");
  here().Resume();
  EXPECT_TRUE(read->Wait(absl::Seconds(10)).ok());
  for (const v1::Ordered& message : here().seen().received) {
    EXPECT_FALSE(message.has_migrate());
  }
}

TEST_F(MigrationTest, ImpossibleMigrationIsDeclined) {
  Begin();
  EXPECT_EQ(Reason(cluster_.coordinator().Migrate("lease-7", 1, 10)),
            "LEASE_UNUSED");
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  EXPECT_EQ(Reason(cluster_.coordinator().Migrate("lease-0", 1, 11)),
            "ALREADY_MIGRATING");
  // A request repeated by a coordinator that came back is the same one.
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  there().Break(absl::UnavailableError("gone"));
  EXPECT_EQ(cluster_.coordinator().WaitOutcome().to_lease_id(), "lease-10");
}

TEST_F(MigrationTest, ACopyNamesTheWorkerThatWillHaveTheValue) {
  Begin();
  there().Set(&FakeScript::entries, FakeScript::Entries::kIgnore);
  cluster_.coordinator().AskToMigrate("lease-0", 1, 10);
  there().WaitEntering();
  // Device 1 would get worker 1, which then has the session of device 0. The
  // test therefore examines only what device 0 offers.
  cluster_.Excuse(1);
  const auto other = *session_->Device(1);
  const StoragePtr copy = other->NewStorage(8);
  std::thread copies(
      [&] { EXPECT_TRUE(other->CopyFrom(0, copy.get(), value_.get()).ok()); });
  there().Break(absl::UnavailableError("gone"));
  copies.join();
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_TRUE(here().seen().received.back().has_offer());
  // Worker 1 never answers device 1.
  session_->Close(absl::ZeroDuration()).IgnoreError();
}

// Wherever a stream is cut, every write executes once, on the worker that the
// device has at that point.
TEST(MigrationCutTest, NothingIsLostAndNothingHappensTwice) {
  for (const int cut_worker : {0, 1}) {
    for (const Cut where :
         {Cut::kBeforeIn, Cut::kAfterIn, Cut::kBeforeOut, Cut::kAfterOut}) {
      for (int n = 1; n <= 12; ++n) {
        SCOPED_TRACE(absl::StrCat("worker ", cut_worker, ", cut ",
                                  static_cast<int>(where), " at ", n));
        FakeCluster cluster;
        const auto [session, device] = cluster.OpenDevice();
        const StoragePtr value = device->NewStorage(8);
        const auto write = [&] {
          return Record(*device, 0, MakeCall(1, {{value, kWrites}}));
        };
        ASSERT_TRUE(write().ok());
        ASSERT_TRUE(ReadByte(*device, 0, value).ok());
        FakeWorker& cut = cluster.worker(cut_worker);
        const bool in = where == Cut::kBeforeIn || where == Cut::kAfterIn;
        cut.CutAt(where, n + (in ? cut.seen().incoming : cut.seen().outgoing));
        const v1::MigrationOutcome outcome =
            cluster.coordinator().Migrate("lease-0", 1, 10);
        for (int i = 0; i < 3; ++i) {
          ASSERT_TRUE(write().ok());
          ASSERT_EQ(ReadByte(*device, 0, value), absl::OkStatus());
        }
        const size_t runs = cluster.worker(0).seen().runs.size() +
                            cluster.worker(1).seen().runs.size();
        EXPECT_EQ(runs, 4u);
        EXPECT_EQ(cluster.worker(1).seen().runs.size(),
                  outcome.has_failure() ? 0u : 3u);
        EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
      }
    }
  }
}

}  // namespace
}  // namespace djinn
