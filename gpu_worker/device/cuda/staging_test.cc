// Tests staging on the fake accelerator, whose streams execute a command only
// when a thread waits for it. So each test fails if the wait that it tests is
// missing.
#include "gpu_worker/device/cuda/staging.h"

#include <string>

#include "gpu_worker/device/cuda/testing/fake_accelerator.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class StagingTest : public testing::Test {
 protected:
  std::string Download(const c10::Storage& from) {
    std::string bytes(from.nbytes(), '?');
    EXPECT_TRUE(
        staging_.Download(bytes.data(), from.data(), bytes.size()).ok());
    return bytes;
  }
  c10::Storage Memory(uint64_t bytes) {
    return accelerator_.Allocate(bytes, StreamId::kCopyIn);
  }
  // Makes the copy-out stream wait for the commands of the copy-in stream.
  void FollowUploads() {
    accelerator_.Wait(StreamId::kCopyOut,
                      accelerator_.Record(StreamId::kCopyIn));
  }

  FakeAccelerator accelerator_;
  Staging staging_{&accelerator_, {.block_bytes = 4, .blocks = 2}};
};

TEST_F(StagingTest, AnUploadDoesNotWait) {
  const c10::Storage to = Memory(4);
  ASSERT_TRUE(
      staging_.Upload(to.mutable_data(), "abcd", StreamId::kCopyIn).ok());
  EXPECT_EQ(accelerator_.pending(StreamId::kCopyIn), 1u);
  EXPECT_EQ(std::string(static_cast<const char*>(to.data()), 4),
            "\xa5\xa5\xa5\xa5");
}

TEST_F(StagingTest, ABlockBehindOperatorsIsNotWaitedForIfAnotherIsFree) {
  const c10::Storage written = accelerator_.Allocate(4, StreamId::kCompute);
  const c10::Storage one = Memory(4), other = Memory(4);
  ASSERT_TRUE(
      staging_.Upload(written.mutable_data(), "oper", StreamId::kCompute).ok());
  ASSERT_TRUE(
      staging_.Upload(one.mutable_data(), "abcd", StreamId::kCopyIn).ok());
  // Both blocks are in flight, and the first waits for the operators.
  ASSERT_TRUE(
      staging_.Upload(other.mutable_data(), "efgh", StreamId::kCopyIn).ok());
  EXPECT_EQ(accelerator_.pending(StreamId::kCompute), 1u);
  EXPECT_EQ(accelerator_.pending(StreamId::kCopyIn), 1u);
  FollowUploads();
  EXPECT_EQ(Download(one), "abcd");
  EXPECT_EQ(Download(other), "efgh");
}

TEST_F(StagingTest, TheSourceMayChangeAtOnce) {
  const c10::Storage to = Memory(4);
  std::string bytes = "abcd";
  ASSERT_TRUE(
      staging_.Upload(to.mutable_data(), bytes, StreamId::kCopyIn).ok());
  bytes = "wxyz";
  FollowUploads();
  EXPECT_EQ(Download(to), "abcd");
}

TEST_F(StagingTest, ABlockIsUsedAgainWhenItsCopyIsDone) {
  const c10::Storage to = Memory(22);
  const std::string bytes = "abcdefghijklmnopqrstuv";
  ASSERT_TRUE(
      staging_.Upload(to.mutable_data(), bytes, StreamId::kCopyIn).ok());
  // Six pieces went through two blocks.
  EXPECT_EQ(accelerator_.pinned_blocks(), 2u);
  EXPECT_EQ(accelerator_.pending(StreamId::kCopyIn), 2u);
  FollowUploads();
  EXPECT_EQ(Download(to), bytes);
  EXPECT_EQ(accelerator_.pinned_blocks(), 2u);
}

TEST_F(StagingTest, ADownloadWaitsForItsBytes) {
  const c10::Storage from = Memory(10);
  accelerator_.Zero(from.mutable_data(), 10, StreamId::kCopyIn);
  FollowUploads();
  EXPECT_EQ(Download(from), std::string(10, '\0'));
  EXPECT_EQ(Download(Memory(0)), "");
}

TEST_F(StagingTest, UploadsToSeveralStreams) {
  const c10::Storage one = Memory(4), other = Memory(4);
  ASSERT_TRUE(
      staging_.Upload(one.mutable_data(), "abcd", StreamId::kCopyIn).ok());
  ASSERT_TRUE(
      staging_.Upload(other.mutable_data(), "efgh", StreamId::kCompute).ok());
  ASSERT_TRUE(
      staging_.Upload(other.mutable_data(), "ijkl", StreamId::kCompute).ok());
  FollowUploads();
  accelerator_.Wait(StreamId::kCopyOut,
                    accelerator_.Record(StreamId::kCompute));
  EXPECT_EQ(Download(one), "abcd");
  EXPECT_EQ(Download(other), "ijkl");
}

TEST_F(StagingTest, ABrokenDeviceIsNoReasonToWait) {
  const c10::Storage to = Memory(12);
  accelerator_.Break(absl::UnavailableError("broken"));
  EXPECT_EQ(
      staging_.Upload(to.mutable_data(), "abcdefghijkl", StreamId::kCopyIn)
          .message(),
      "broken");
  char bytes[12];
  EXPECT_EQ(staging_.Download(bytes, to.data(), 12).message(), "broken");
}

}  // namespace
}  // namespace djinn::worker
