// Tests eager uploads with fake workers.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "client_lib/session/transfer/upload_progress.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr size_t kSize = 300'000;

class EagerTransferTest : public DeviceTest {
 protected:
  ~EagerTransferTest() override {
    EXPECT_TRUE(session_->Close(absl::Seconds(10)).ok());
  }

  // Opens a session and uploads a value first, so that the worker's room is
  // known.
  void Open(uint64_t room) {
    worker_.Set(&FakeScript::content_room, room);
    const StoragePtr small = device_->NewStorage(4);
    ASSERT_TRUE(Upload(small, "abcd").ok());
    ASSERT_EQ(*ReadAll(small), "abcd");
  }

  absl::Status Upload(const StoragePtr& storage, const std::string& bytes) {
    return device_->Upload(1, storage.get(), {bytes, nullptr});
  }
  // Returns how the executed uploads travelled, one letter each.
  std::string Ways() {
    std::string ways;
    for (const v1::Ordered& message : worker_.seen().received) {
      if (message.install().has_content()) ways += 'c';
      if (message.install().has_transfer()) ways += 't';
    }
    return ways;
  }

  FakeWorker& worker_ = cluster_.worker();
};

TEST_F(EagerTransferTest, UploadReturnsWhileTheWorkerIsPaused) {
  Open(1 << 20);
  // The worker executes nothing and answers nothing.
  worker_.Pause();
  std::string bytes = Pattern(kSize);
  const StoragePtr storage = device_->NewStorage(kSize);
  ASSERT_TRUE(Upload(storage, bytes).ok());
  // The upload copied the bytes.
  bytes.assign(kSize, 'x');
  worker_.Resume();
  EXPECT_TRUE(*ReadAll(storage) == Pattern(kSize));
  EXPECT_EQ(Ways(), "c");
  EXPECT_EQ(session_->statistics().uploads_sent, 1u);
  EXPECT_GE(session_->statistics().bytes_up, kSize);
}

TEST_F(EagerTransferTest, BeforeTheRoomIsKnownTheWorkerIsAsked) {
  worker_.Set(&FakeScript::content_room, 1 << 20);
  Uploaded(Pattern(kSize));
  EXPECT_EQ(Ways(), "t");
}

// Resembles the second start of a program.
TEST_F(EagerTransferTest, AWorkerThatHasNewContentsIsAskedForTheNext) {
  worker_.Set(&FakeScript::content_room, 4 * kSize);
  worker_.Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  // The very first upload asks, because the room is not known yet.
  Uploaded(std::string(kSize, 'a'));
  const uint64_t before = session_->statistics().bytes_up;
  Uploaded(std::string(kSize, 'b'));
  EXPECT_LT(session_->statistics().bytes_up - before, 1000u);
  // Contents that this device uploaded itself do not count.
  worker_.Set(&FakeScript::transfers, FakeScript::Transfers::kSend);
  Uploaded(std::string(kSize, 'c'));
  worker_.Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  Uploaded(std::string(kSize, 'c'));
  Uploaded(std::string(kSize, 'd'));
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Ways(), "ttttc");
}

TEST_F(EagerTransferTest, RepeatedContentIsSentHashFirst) {
  Open(1 << 20);
  Uploaded(Pattern(kSize));
  worker_.Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  Uploaded(Pattern(kSize));
  EXPECT_EQ(Ways(), "ct");
  EXPECT_EQ(session_->statistics().uploads_already_held, 1u);
}

TEST_F(EagerTransferTest, BeyondTheRoomTheWorkerIsAsked) {
  Open(2 * kSize);
  worker_.Pause();
  const StoragePtr a = Uploaded(std::string(kSize, 'a')),
                   b = Uploaded(std::string(kSize, 'b'));
  // This upload has to wait.
  std::thread program([this] { Uploaded(std::string(kSize, 'c')); });
  worker_.WaitWaiting(3);
  worker_.Resume();
  program.join();
  // No upload is under way any more.
  Uploaded(std::string(kSize, 'd'));
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Ways(), "cctc");
}

TEST_F(EagerTransferTest, StorageNotYetCreatedTakesRoom) {
  Open(4 * kSize);
  // The storage does not exist on the worker yet. Once it does, it will leave
  // too little of the worker's 1 GiB.
  const StoragePtr most = device_->NewStorage(900 << 20);
  Uploaded(Pattern(kSize));
  EXPECT_EQ(Ways(), "t");
}

TEST_F(EagerTransferTest, LargeUploadIsSentHashFirst) {
  Open(uint64_t{1} << 30);
  Uploaded(Pattern(kMaxContentBytes));
  Uploaded(Pattern(kMaxContentBytes + 1));
  EXPECT_EQ(Ways(), "ct");
}

TEST_F(EagerTransferTest, UploadsThatWaitForTheWindowAreBounded) {
  Open(uint64_t{1} << 30);
  // The window takes 16 MiB. Uploads beyond it wait in the call.
  worker_.Pause();
  absl::Status status;
  std::atomic<int> returned{0};
  std::thread program([&] {
    for (int i = 0; status.ok() && i < 64; ++i) {
      const StoragePtr storage = device_->NewStorage(1 << 20);
      status = Upload(storage, std::string(1 << 20, static_cast<char>(i)));
      ++returned;
    }
  });
  // Counts uploads that were sent, and as many that were not.
  worker_.WaitWaiting(16);
  EXPECT_LE(returned, 34);
  worker_.Resume();
  program.join();
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Ways(), std::string(64, 'c'));
}

TEST_F(EagerTransferTest, ANearWorkerIsAsked) {
  cluster_.BeNear();
  Open(4 * kSize);
  Uploaded(Pattern(kSize));
  EXPECT_EQ(Ways(), "t");
}

TEST_F(EagerTransferTest, WatchedUploadIsNotEager) {
  Open(4 * kSize);
  uint64_t done = 0;
  WatchUploads([&](uint64_t now, uint64_t) { done = now; }, kSize);
  Uploaded(Pattern(kSize));
  EXPECT_EQ(done, kSize);
  WatchUploads(nullptr, 0);
  EXPECT_EQ(Ways(), "t");
}

}  // namespace
}  // namespace djinn
