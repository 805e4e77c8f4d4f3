#include "gpu_worker/device/cuda/upload_order.h"

#include <cstring>
#include <memory>
#include <string>

#include "gpu_worker/device/cuda/testing/fake_accelerator.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class UploadOrderTest : public testing::Test {
 protected:
  std::unique_ptr<TorchBuffer> Buffer(uint64_t bytes) {
    auto buffer = std::make_unique<TorchBuffer>(
        accelerator_.Allocate(bytes, StreamId::kCopyIn));
    order_.Add(*buffer);
    return buffer;
  }
  void Write(const TorchBuffer& buffer) {
    accelerator_.Zero(buffer.data(), buffer.size_bytes(), StreamId::kCopyIn);
    order_.Wrote(buffer);
  }
  // Returns the bytes that an operator would read.
  std::string Seen(const TorchBuffer& buffer) {
    const auto scope = accelerator_.EnterCompute();
    return std::string(buffer.data(), buffer.size_bytes());
  }

  FakeAccelerator accelerator_;
  UploadOrder order_{&accelerator_};
};

TEST_F(UploadOrderTest, AnOperatorSeesWhatWasUploaded) {
  const auto buffer = Buffer(3);
  Write(*buffer);
  order_.Join(*buffer);
  EXPECT_EQ(Seen(*buffer), std::string(3, '\0'));
  EXPECT_EQ(order_.size(), 0u);
  // A second Join() adds no wait.
  order_.Join(*buffer);
  EXPECT_EQ(accelerator_.waits(), 1u);
}

TEST_F(UploadOrderTest, OtherUploadsAreNotWaitedFor) {
  const auto mine = Buffer(3);
  Write(*mine);
  const auto other = Buffer(3);
  Write(*other);
  order_.Join(*mine);
  Seen(*mine);
  EXPECT_EQ(accelerator_.pending(StreamId::kCopyIn), 1u);
  EXPECT_NE(order_.EventOf(*other), nullptr);
  EXPECT_EQ(order_.EventOf(*mine), nullptr);
}

TEST_F(UploadOrderTest, UnwrittenMemoryIsWaitedFor) {
  // A command that the earlier owner enqueued still writes to the memory.
  const auto buffer = std::make_unique<TorchBuffer>(
      accelerator_.Allocate(3, StreamId::kCopyIn));
  accelerator_.Zero(buffer->data(), 3, StreamId::kCopyIn);
  order_.Add(*buffer);
  order_.Join(*buffer);
  EXPECT_EQ(Seen(*buffer), std::string(3, '\0'));
}

TEST_F(UploadOrderTest, MemoryIsSaidToBeUsedByOperators) {
  auto buffer = Buffer(3);
  Write(*buffer);
  order_.Join(*buffer);
  accelerator_.Zero(buffer->data(), 3, StreamId::kCompute);
  order_.Forget(*buffer);
  buffer.reset();
  EXPECT_EQ(accelerator_.freed_too_early(), 0u);
}

TEST_F(UploadOrderTest, ForgottenBufferHasNoEvent) {
  auto buffer = Buffer(3);
  order_.Forget(*buffer);
  EXPECT_EQ(order_.size(), 0u);
  order_.Wrote(*buffer);
  EXPECT_EQ(order_.EventOf(*buffer), nullptr);
}

}  // namespace
}  // namespace djinn::worker
