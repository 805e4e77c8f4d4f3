// Tests reads that the program waits for later, or not at all.
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

class PendingReadTest : public DeviceTest {
 protected:
  void Upload(const StoragePtr& storage, const std::string& bytes) {
    ASSERT_TRUE(device_->Upload(0, storage.get(), {bytes, nullptr}).ok());
  }
  std::unique_ptr<PendingRead> Start(const StoragePtr& storage,
                                     std::string* destination) {
    destination->assign(storage->size_bytes(), '?');
    return device_
        ->StartRead(0, storage.get(), WholeView(*storage.get()),
                    destination->data(), destination->size())
        .value();
  }
};

TEST_F(PendingReadTest, IsTheValueThatTheStorageHadAtTheCall) {
  const StoragePtr storage = Uploaded("first...");
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::string value;
  const auto read = Start(storage, &value);
  Upload(storage, "second..");
  EXPECT_FALSE(read->Ready());
  const absl::Status pending = read->Wait(absl::ZeroDuration());
  EXPECT_EQ(ErrorReason(pending), "VALUE_PENDING");
  EXPECT_EQ(pending.code(), absl::StatusCode::kDeadlineExceeded);
  cluster_.worker().Resume();
  ASSERT_TRUE(read->Wait(kLong).ok());
  EXPECT_TRUE(read->Ready());
  EXPECT_EQ(value, "first...");
  ASSERT_TRUE(read->Wait(absl::ZeroDuration()).ok());
  std::string later;
  ASSERT_TRUE(Start(storage, &later)->Wait(kLong).ok());
  EXPECT_EQ(later, "second..");
}

TEST_F(PendingReadTest, CallsBackOnceItIsReadyAndAtOnceAfterwards) {
  const StoragePtr storage = Uploaded("12345678");
  cluster_.worker().Pause();
  std::string value;
  const auto read = Start(storage, &value);
  Mutex mu;
  CondVar changed;
  int calls = 0;
  const auto count = [&] {
    MutexLock lock(&mu);
    ++calls;
    changed.SignalAll();
  };
  read->OnReady(count);
  read->OnReady(count);
  cluster_.worker().Resume();
  {
    MutexLock lock(&mu);
    for (Patience patience; calls < 2;) patience.Wait(&changed, &mu);
  }
  EXPECT_TRUE(read->Ready());
  read->OnReady(count);
  EXPECT_EQ(calls, 3);
  ASSERT_TRUE(read->Wait(absl::ZeroDuration()).ok());
  EXPECT_EQ(value, "12345678");
}

TEST_F(PendingReadTest, FailsWithTheRootError) {
  const StoragePtr storage = Uploaded("12345678");
  cluster_.worker().Set(&FakeScript::fail_next_run, 9);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storage, kWrites}})).ok());
  std::string value;
  const auto read = Start(storage, &value);
  const absl::Status failed = read->Wait(kLong);
  EXPECT_EQ(ErrorMetadataValue(failed, "error_id"), "9");
  EXPECT_EQ(read->Wait(kLong), failed);
  // The error was reported, so that the end of the session does not repeat it.
  EXPECT_TRUE(session_->Close(kLong).ok());
}

TEST_F(PendingReadTest, ALargeOneThatIsDroppedLeavesTheDestinationAlone) {
  const std::string bytes = Pattern(3 << 20);
  const StoragePtr storage = Uploaded(bytes);
  cluster_.worker().Pause();
  {
    auto gone = std::make_unique<std::string>();
    auto read = Start(storage, gone.get());
    read->OnReady([] { FAIL() << "nobody waits any more"; });
    read.reset();
  }
  cluster_.worker().Resume();
  std::string value;
  const auto read = Start(storage, &value);
  ASSERT_TRUE(read->Wait(kLong).ok());
  EXPECT_EQ(value, bytes);
}

TEST_F(PendingReadTest, DroppedReadMayOwnAnotherOneThroughItsCallback) {
  const StoragePtr storage = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::string value, other_value;
  auto read = Start(storage, &value);
  std::shared_ptr<PendingRead> other = Start(storage, &other_value);
  const std::weak_ptr<PendingRead> last = other;
  read->OnReady([other = std::move(other)] { FAIL() << other->Ready(); });
  read.reset();
  EXPECT_TRUE(last.expired());
  cluster_.worker().Resume();
  EXPECT_TRUE(device_->Synchronize().ok());
}

TEST_F(PendingReadTest, FailureIsDeliveredByAnotherThreadThanTheOneThatFails) {
  const StoragePtr storage = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::string value;
  const auto read = Start(storage, &value);
  std::promise<std::thread::id> called;
  read->OnReady([&] { called.set_value(std::this_thread::get_id()); });
  // This thread may hold locks that the callback takes.
  cluster_.coordinator().EndLease("lease-0", "WORKER_RESTARTED");
  EXPECT_NE(called.get_future().get(), std::this_thread::get_id());
  EXPECT_EQ(ErrorReason(read->Wait(kLong)), "WORKER_LOST");
}

TEST_F(PendingReadTest, TheEndOfTheSessionIsAnAnswer) {
  const StoragePtr storage = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::string value;
  const auto read = Start(storage, &value);
  bool called = false;
  read->OnReady([&] { called = true; });
  (void)session_->Close(absl::ZeroDuration());
  EXPECT_TRUE(called);
  EXPECT_TRUE(read->Ready());
  EXPECT_EQ(ErrorReason(read->Wait(kLong)), "SESSION_CLOSED");
}

TEST(PendingReadBulkTest, ThreadThatWaitsForBulkDoesNotLead) {
  FakeCluster cluster;
  cluster.SendTogether();
  const auto [session, device] = cluster.OpenDevice();
  const std::string bytes = Pattern(3 << 20);
  const StoragePtr storage = device->NewStorage(bytes.size());
  ASSERT_TRUE(device->Upload(0, storage.get(), {bytes, nullptr}).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const int before = cluster.reclaims();
  cluster.worker().Pause();
  std::string value(bytes.size(), '?');
  const auto read = device->StartRead(
      0, storage.get(), WholeView(*storage.get()), value.data(), value.size());
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE((*read)->Wait(absl::Milliseconds(1)).ok());
  EXPECT_GT(cluster.reclaims(), before);
  cluster.worker().Resume();
  ASSERT_TRUE((*read)->Wait(kLong).ok());
  EXPECT_EQ(value, bytes);
}

TEST(PendingReadTimeTest, NoAnswerAtAllIsAnError) {
  FakeClock clock;
  FakeCluster cluster;
  const auto [session, device] =
      cluster.OpenDevice(OptionsWith(&clock, absl::Seconds(30)));
  const StoragePtr storage = device->NewStorage(8);
  ASSERT_TRUE(device->Upload(0, storage.get(), {"12345678", nullptr}).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  cluster.worker().Pause();
  std::string value(8, '?');
  const auto read = device->StartRead(
      0, storage.get(), WholeView(*storage.get()), value.data(), value.size());
  ASSERT_TRUE(read.ok());
  absl::Status status;
  WhileTimePasses(&clock,
                  [&] { status = (*read)->Wait(absl::InfiniteDuration()); });
  EXPECT_EQ(ErrorReason(status), "OPERATION_TIMEOUT");
  EXPECT_FALSE((*read)->Ready());
  cluster.worker().Resume();
}

}  // namespace
}  // namespace djinn
