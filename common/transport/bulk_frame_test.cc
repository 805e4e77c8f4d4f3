#include "common/transport/bulk_frame.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/hash/crc32c.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

std::vector<absl::string_view> Cut(absl::string_view bytes, size_t step) {
  std::vector<absl::string_view> pieces;
  for (size_t at = 0; at < bytes.size(); at += step) {
    pieces.push_back(bytes.substr(at, step));
    pieces.push_back("");
  }
  return pieces;
}

TEST(BulkFrameTest, AFrameIsAnEncodingOfItsMessage) {
  const std::string payload = "tensor bytes";
  const std::string frame = EncodeBulkHeader(300, 1 << 20, payload) + payload;
  v1::BulkChunk chunk;
  ASSERT_TRUE(chunk.ParseFromString(frame));
  EXPECT_EQ(chunk.transfer_id(), 300u);
  EXPECT_EQ(chunk.offset(), 1u << 20);
  EXPECT_EQ(chunk.crc32c(), Crc32c(payload));
  EXPECT_EQ(chunk.payload(), payload);
}

TEST(BulkFrameTest, ParsesHoweverTheFrameIsCut) {
  const std::string payload(1000, 'x');
  v1::BulkChunk chunk;
  chunk.mutable_hello()->set_session_id("s");
  chunk.mutable_hello()->set_lease_token("t");
  chunk.set_transfer_id(7);
  chunk.set_offset(1 << 21);
  chunk.set_crc32c(Crc32c(payload));
  chunk.set_payload(payload);
  const std::string bytes = chunk.SerializeAsString();
  for (size_t step : {1, 2, 3, 7, 64, 5000}) {
    const std::vector<absl::string_view> pieces = Cut(bytes, step);
    absl::StatusOr<BulkFrame> frame = ParseBulkFrame(pieces);
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_TRUE(frame->hello.has_value());
    EXPECT_EQ(frame->hello->lease_token(), "t");
    EXPECT_EQ(frame->transfer_id, 7u);
    EXPECT_EQ(frame->offset, uint64_t{1} << 21);
    EXPECT_EQ(frame->payload_bytes, payload.size());
    EXPECT_EQ(absl::StrJoin(frame->payload, ""), payload);
    EXPECT_TRUE(VerifyChecksum(*frame).ok());
  }
}

TEST(BulkFrameTest, AHelloAloneHasNoChunk) {
  v1::BulkHello hello;
  hello.set_session_id("s");
  const std::string bytes = EncodeBulkHello(hello);
  const absl::string_view piece = bytes;
  absl::StatusOr<BulkFrame> frame = ParseBulkFrame({piece});
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->hello->session_id(), "s");
  EXPECT_EQ(frame->transfer_id, 0u);
}

TEST(BulkFrameTest, RefusesWhatIsBroken) {
  const std::string payload = "abc";
  const std::string good = EncodeBulkHeader(1, 0, payload) + payload;
  for (size_t size = 1; size < good.size(); ++size) {
    const absl::string_view piece = absl::string_view(good).substr(0, size);
    const absl::StatusOr<BulkFrame> frame = ParseBulkFrame({piece});
    if (frame.ok()) {
      EXPECT_EQ(frame->payload_bytes, 0u) << size;
    } else {
      EXPECT_EQ(ErrorReason(frame.status()), "PROTOCOL_VIOLATION");
    }
  }
  const std::string after = good + std::string("\x10\x01");
  EXPECT_FALSE(ParseBulkFrame({absl::string_view(after)}).ok());
  // Tags have 32 bits in at most five bytes, whatever the field.
  const std::string far("\xf0\xff\xff\xff\xff\x09\x01", 7);
  EXPECT_FALSE(ParseBulkFrame({absl::string_view(far)}).ok());
  const std::string longer("\x90\x80\x80\x80\x80\x00\x01", 7);
  EXPECT_FALSE(ParseBulkFrame({absl::string_view(longer)}).ok());
  const std::string large(kMaxBulkFrameBytes + 1, 'x');
  EXPECT_FALSE(ParseBulkFrame({absl::string_view(large)}).ok());
}

TEST(BulkFrameTest, AWrongChecksumIsFoundOut) {
  const std::string payload = "abc";
  std::string bytes = EncodeBulkHeader(1, 0, payload) + payload;
  bytes.back() = 'd';
  absl::StatusOr<BulkFrame> frame = ParseBulkFrame({absl::string_view(bytes)});
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(ErrorReason(VerifyChecksum(*frame)), "CHUNK_CORRUPT");
}

TEST(BulkFrameTest, AChecksumMayBeAbsentOnAnEncryptedConnectionOnly) {
  const std::string payload = "tensor bytes";
  const std::string bytes =
      EncodeBulkHeader(1, 0, payload, /*encrypted=*/true) + payload;
  const auto frame = ParseBulkFrame({absl::string_view(bytes)});
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_FALSE(frame->crc32c.has_value());
  EXPECT_TRUE(VerifyChecksum(*frame, /*encrypted=*/true).ok());
  EXPECT_EQ(ErrorReason(VerifyChecksum(*frame)), "CHUNK_CORRUPT");
  // A checksum that is present is verified.
  std::string wrong = EncodeBulkHeader(1, 0, payload) + payload;
  wrong.back() ^= 1;
  const auto broken = ParseBulkFrame({absl::string_view(wrong)});
  ASSERT_TRUE(broken.ok());
  EXPECT_FALSE(VerifyChecksum(*broken, /*encrypted=*/true).ok());
}

}  // namespace
}  // namespace djinn
