#include "common/transport/shared_memory/frame_ring.h"

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

std::string Joined(const FrameRingReader::Frame& frame) {
  std::string bytes;
  for (const absl::string_view piece : frame.payload()) {
    bytes.append(piece.data(), piece.size());
  }
  return bytes;
}

class FrameRingTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 512;

  bool Put(const std::string& payload, uint64_t offset = 0) {
    const absl::StatusOr<bool> fits = writer_.FitsOrAwait(payload.size());
    EXPECT_TRUE(fits.ok());
    if (!*fits) return false;
    FrameHeader header;
    header.offset = offset;
    writer_.Write(header, payload);
    return true;
  }

  // Leaves the state as a hostile writer would, and returns the reader's
  // result.
  absl::Status PeekAt(uint64_t written, const FrameHeader& header) {
    std::memcpy(data_.data(), &header, sizeof(header));
    state_.written = written;
    FrameRingReader reader(&state_, data_.data(), kBytes);
    FrameRingReader::Frame frame;
    return reader.Peek(&frame).status();
  }

  RingState state_ = {};
  std::vector<char> data_ = std::vector<char>(kBytes, 'x');
  FrameRingWriter writer_{&state_, data_.data(), kBytes};
  FrameRingReader reader_{&state_, data_.data(), kBytes};
};

TEST_F(FrameRingTest, KeepsFramesInOrderAroundTheEnd) {
  std::mt19937 random(7);
  std::vector<std::string> sent, received;
  FrameRingReader::Frame frame;
  while (received.size() < 5000) {
    std::string payload = absl::StrCat(sent.size(), ":");
    payload.resize(payload.size() + random() % writer_.max_payload() / 2, '.');
    if (Put(payload, sent.size())) sent.push_back(payload);
    if (random() % 2 == 0) continue;
    const absl::StatusOr<bool> here = reader_.Peek(&frame);
    ASSERT_TRUE(here.ok()) << here.status();
    if (!*here) continue;
    EXPECT_EQ(frame.header.offset, received.size());
    received.push_back(Joined(frame));
    reader_.Pop();
  }
  sent.resize(received.size());
  EXPECT_EQ(sent, received);
}

TEST_F(FrameRingTest, IsFullAndTellsAnAwaitingWriterOfRoom) {
  const std::string payload(96, 'a');  // 128 bytes a frame
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Put(payload));
  EXPECT_FALSE(Put(payload));
  FrameRingReader::Frame frame;
  // The second Pop() makes the ring half empty. After it the writer waits no
  // more.
  for (const bool told : {false, true, false, false}) {
    ASSERT_TRUE(*reader_.Peek(&frame));
    EXPECT_EQ(reader_.Pop(), told);
  }
  EXPECT_TRUE(reader_.empty());
  EXPECT_FALSE(*reader_.Peek(&frame));
}

TEST_F(FrameRingTest, AnEmptyPayloadIsAFrame) {
  ASSERT_TRUE(Put(""));
  FrameRingReader::Frame frame;
  ASSERT_TRUE(*reader_.Peek(&frame));
  EXPECT_EQ(Joined(frame), "");
  reader_.Pop();
  EXPECT_TRUE(reader_.empty());
}

TEST_F(FrameRingTest, ABrokenWriterIsFoundOut) {
  FrameHeader good;
  good.payload_bytes = 32;
  EXPECT_TRUE(PeekAt(64, good).ok());
  EXPECT_EQ(ErrorReason(PeekAt(kBytes + 32, good)), "RING_CORRUPT");
  EXPECT_EQ(ErrorReason(PeekAt(~uint64_t{0}, good)), "RING_CORRUPT");
  EXPECT_EQ(ErrorReason(PeekAt(65, good)), "RING_CORRUPT");
  EXPECT_EQ(ErrorReason(PeekAt(32, good)), "RING_CORRUPT");
  FrameHeader header = good;
  header.payload_bytes = ~uint32_t{0};
  EXPECT_EQ(ErrorReason(PeekAt(kBytes, header)), "RING_CORRUPT");
  header = good;
  header.kind = static_cast<FrameKind>(0);
  EXPECT_EQ(ErrorReason(PeekAt(64, header)), "RING_CORRUPT");
  header.kind = static_cast<FrameKind>(4);
  EXPECT_EQ(ErrorReason(PeekAt(64, header)), "RING_CORRUPT");
  header = good;
  header.more = 2;
  EXPECT_EQ(ErrorReason(PeekAt(64, header)), "RING_CORRUPT");
  header = good;
  header.zero_too = 1;
  EXPECT_EQ(ErrorReason(PeekAt(64, header)), "RING_CORRUPT");
}

TEST_F(FrameRingTest, ABrokenReaderIsFoundOut) {
  ASSERT_TRUE(Put("payload"));
  state_.read = 4096;
  EXPECT_EQ(ErrorReason(writer_.Fits(8).status()), "RING_CORRUPT");
}

TEST(FrameRingThreadsTest, OneWritesWhileTheOtherReads) {
  constexpr size_t kBytes = 4096;
  constexpr uint64_t kFrames = 50000;
  const auto state = std::make_unique<RingState>();
  std::vector<char> data(kBytes);
  std::thread writing([&] {
    FrameRingWriter writer(state.get(), data.data(), kBytes);
    for (uint64_t i = 0; i < kFrames; ++i) {
      const std::string payload(i % 300, static_cast<char>(i));
      for (Patience patience; !writer.Fits(payload.size()).value();) {
        patience.Yield();
      }
      FrameHeader header;
      header.offset = i;
      writer.Write(header, payload);
    }
  });
  FrameRingReader reader(state.get(), data.data(), kBytes);
  FrameRingReader::Frame frame;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kFrames; ++i) {
    for (Patience patience; !reader.Peek(&frame).value();) patience.Yield();
    wrong += frame.header.offset != i ||
             Joined(frame) != std::string(i % 300, static_cast<char>(i));
    reader.Pop();
  }
  writing.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace djinn
