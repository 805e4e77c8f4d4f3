#include "client_lib/session/unasked_uploads.h"

#include "common/transport/stream.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint64_t kSize = 100'000;

v1::WorkerHello Hello() {
  v1::WorkerHello hello;
  hello.add_features(v1::WORKER_FEATURE_CONTENT);
  hello.mutable_limits()->set_max_outstanding_bytes(64 << 20);
  return hello;
}

v1::ControlResponse Room(uint64_t bytes, uint64_t completed = 0) {
  v1::ControlResponse response;
  response.set_content_room(bytes);
  response.set_completed_sequence(completed);
  return response;
}

class UnaskedUploadsTest : public testing::Test {
 protected:
  void Begin(const v1::WorkerHello& hello, uint64_t room) {
    uploads_.Begin(hello);
    v1::ControlResponse response = Room(room);
    *response.mutable_hello() = hello;
    uploads_.Hear(response);
  }
  bool Take(uint64_t size_bytes, uint64_t sample) {
    return uploads_.Take(size_bytes, sample, /*fits=*/true);
  }

  UnaskedUploads uploads_;
};

TEST_F(UnaskedUploadsTest, WhatTheWorkerDoesNotHaveGoesUnasked) {
  EXPECT_FALSE(Take(kSize, 1));
  v1::WorkerHello hello = Hello();
  hello.mutable_held()->add_samples(2);
  hello.mutable_held()->add_sizes(kSize + 1);
  Begin(hello, 1 << 20);
  EXPECT_TRUE(Take(kSize, 3));
  EXPECT_FALSE(Take(kSize, 2));
  EXPECT_FALSE(Take(kSize + 1, 4));
}

TEST_F(UnaskedUploadsTest, WhatWasUploadedIsThere) {
  Begin(Hello(), 1 << 20);
  EXPECT_TRUE(Take(kSize, 1));
  EXPECT_FALSE(Take(kSize, 1));
  // It was asked for, being too large, and came.
  EXPECT_FALSE(Take(kMaxContentBytes + 1, 2));
  EXPECT_FALSE(Take(kSize, 2));
}

TEST_F(UnaskedUploadsTest, TheLatestAreRemembered) {
  Begin(Hello(), uint64_t{1} << 40);
  const uint64_t most = UnaskedUploads::kMaxRemembered;
  for (uint64_t i = 1; i <= 2 * most; ++i) EXPECT_TRUE(Take(kSize, i));
  EXPECT_FALSE(Take(kSize, most + 1));
  EXPECT_TRUE(Take(kSize, 1));
}

TEST_F(UnaskedUploadsTest, ThereHasToBeRoomBesidesWhatIsUnderWay) {
  Begin(Hello(), 2 * kSize);
  EXPECT_TRUE(Take(kSize, 1));
  EXPECT_TRUE(Take(kSize, 2));
  EXPECT_FALSE(Take(kSize, 3));
  uploads_.Complete(kSize);
  uploads_.Hear(Room(2 * kSize, 5));
  EXPECT_TRUE(Take(kSize, 4));
  EXPECT_FALSE(Take(kSize, 5));
  // A response that was said again.
  uploads_.Hear(Room(9 * kSize, 4));
  EXPECT_FALSE(Take(kSize, 6));
  // What is carried out next has taken its room.
  uploads_.Hear(Room(kSize, 5));
  uploads_.Complete(kSize);
  EXPECT_FALSE(Take(kSize, 8));
  uploads_.Hear(Room(2 * kSize, 5));
  EXPECT_TRUE(Take(kSize, 9));
  // Nothing new of it.
  v1::ControlResponse silent;
  silent.set_completed_sequence(6);
  uploads_.Hear(silent);
  uploads_.Complete(kSize);
  EXPECT_TRUE(Take(kSize, 7));
}

TEST_F(UnaskedUploadsTest, WhatTheProgramHasMustLeaveRoom) {
  Begin(Hello(), 9 * kSize);
  EXPECT_FALSE(uploads_.Take(kSize, 1, /*fits=*/false));
  EXPECT_TRUE(Take(kSize, 2));
}

TEST_F(UnaskedUploadsTest, SeveralFitIntoTheMessagesWindow) {
  v1::WorkerHello hello = Hello();
  hello.mutable_limits()->set_max_outstanding_bytes(1 << 20);
  Begin(hello, 16 << 20);
  EXPECT_FALSE(Take((256 << 10) + 1, 1));
  EXPECT_TRUE(Take(256 << 10, 2));
}

TEST_F(UnaskedUploadsTest, AnotherWorkerHasWhatCameAlong) {
  Begin(Hello(), 2 * kSize);
  EXPECT_TRUE(Take(kSize, 1));
  // What is under way goes there.
  Begin(Hello(), 2 * kSize);
  EXPECT_FALSE(Take(kSize, 1));
  EXPECT_TRUE(Take(kSize, 2));
  EXPECT_FALSE(Take(kSize, 3));
  uploads_.Complete(2 * kSize);
  v1::WorkerHello earlier_build = Hello();
  earlier_build.clear_features();
  Begin(earlier_build, 2 * kSize);
  EXPECT_FALSE(Take(kSize, 4));
}

}  // namespace
}  // namespace djinn
