#include "client_lib/session/transfer/eager_uploads.h"

#include "common/transport/stream.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint64_t kSize = 100'000;

v1::WorkerHello Hello() {
  v1::WorkerHello hello;
  hello.mutable_limits()->set_max_outstanding_bytes(64 << 20);
  return hello;
}

v1::ControlResponse Room(uint64_t bytes, uint64_t completed = 0) {
  v1::ControlResponse response;
  response.set_content_room(bytes);
  response.set_completed_sequence(completed);
  return response;
}

class EagerUploadsTest : public testing::Test {
 protected:
  void Begin(const v1::WorkerHello& hello, uint64_t room) {
    uploads_.Begin(hello);
    v1::ControlResponse response = Room(room);
    *response.mutable_hello() = hello;
    uploads_.Hear(response);
  }

  EagerUploads uploads_;
};

TEST_F(EagerUploadsTest, BeforeTheHelloThereIsNoRoom) {
  EXPECT_FALSE(uploads_.Take(1));
  Begin(Hello(), 1 << 20);
  EXPECT_TRUE(uploads_.Take(kSize));
}

TEST_F(EagerUploadsTest, TheLatestUploadsAreRemembered) {
  EXPECT_FALSE(uploads_.Remember({1, 0}));
  EXPECT_TRUE(uploads_.Remember({1, 0}));
  const uint64_t most = EagerUploads::kMaxRemembered;
  for (uint64_t i = 2; i <= 2 * most; ++i) {
    EXPECT_FALSE(uploads_.Remember({i, 0}));
  }
  EXPECT_TRUE(uploads_.Remember({most + 1, 0}));
  EXPECT_FALSE(uploads_.Remember({1, 0}));
}

TEST_F(EagerUploadsTest, EagerUploadTakesRoomUntilItCompletes) {
  Begin(Hello(), 2 * kSize);
  EXPECT_TRUE(uploads_.Take(kSize));
  EXPECT_TRUE(uploads_.Take(kSize));
  EXPECT_FALSE(uploads_.Take(kSize));
  uploads_.Complete(kSize);
  uploads_.Hear(Room(2 * kSize, 5));
  EXPECT_TRUE(uploads_.Take(kSize));
  EXPECT_FALSE(uploads_.Take(kSize));
  // A repeated response is older.
  uploads_.Hear(Room(9 * kSize, 4));
  EXPECT_FALSE(uploads_.Take(kSize));
  // The next upload took its room, at the same sequence.
  uploads_.Hear(Room(kSize, 5));
  uploads_.Complete(kSize);
  EXPECT_FALSE(uploads_.Take(kSize));
  uploads_.Hear(Room(2 * kSize, 5));
  EXPECT_TRUE(uploads_.Take(kSize));
  // A response without a room changes nothing.
  v1::ControlResponse silent;
  silent.set_completed_sequence(6);
  uploads_.Hear(silent);
  uploads_.Complete(kSize);
  EXPECT_TRUE(uploads_.Take(kSize));
}

TEST_F(EagerUploadsTest, SeveralFitIntoTheWindow) {
  v1::WorkerHello hello = Hello();
  hello.mutable_limits()->set_max_outstanding_bytes(1 << 20);
  Begin(hello, 16 << 20);
  EXPECT_FALSE(uploads_.Take((256 << 10) + 1));
  EXPECT_TRUE(uploads_.Take(256 << 10));
}

TEST_F(EagerUploadsTest, TwoMebibytesAreTheMost) {
  Begin(Hello(), 16 << 20);
  EXPECT_FALSE(uploads_.Take(kMaxContentBytes + 1));
  EXPECT_TRUE(uploads_.Take(kMaxContentBytes));
}

TEST_F(EagerUploadsTest, AnotherWorkerReceivesWhatIsUnderWay) {
  Begin(Hello(), 2 * kSize);
  EXPECT_FALSE(uploads_.Remember({1, 0}));
  EXPECT_TRUE(uploads_.Take(kSize));
  Begin(Hello(), 2 * kSize);
  EXPECT_TRUE(uploads_.Remember({1, 0}));
  EXPECT_TRUE(uploads_.Take(kSize));
  EXPECT_FALSE(uploads_.Take(kSize));
}

}  // namespace
}  // namespace djinn
