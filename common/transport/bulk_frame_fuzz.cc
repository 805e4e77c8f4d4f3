// Parses a frame of the Bulk stream from a peer, cut into pieces as a transport
// might, and compares the result with protobuf's.
//
// The first byte decides how the frame is cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/transport/bulk_frame.h"

namespace djinn {
namespace {

using fuzz::Require;

void TestOne(absl::string_view bytes, size_t step) {
  std::vector<absl::string_view> pieces;
  for (size_t at = 0; at < bytes.size(); at += step) {
    pieces.push_back(bytes.substr(at, step));
    if (at % 3 == 0) pieces.push_back("");
  }
  const absl::StatusOr<BulkFrame> whole =
      ParseBulkFrame(absl::MakeConstSpan(&bytes, 1));
  const absl::StatusOr<BulkFrame> frame = ParseBulkFrame(pieces);
  Require(frame.status() == whole.status(), "cuts do not matter");
  if (!frame.ok()) return;
  Require(frame->transfer_id == whole->transfer_id &&
              frame->offset == whole->offset && frame->crc32c == whole->crc32c,
          "cuts do not change the header");
  const std::string payload = absl::StrJoin(frame->payload, "");
  Require(payload == absl::StrJoin(whole->payload, "") &&
              payload.size() == frame->payload_bytes,
          "cuts do not change the payload");
  Require(VerifyChecksum(*frame).ok() == VerifyChecksum(*whole).ok(),
          "cuts do not change the checksum");

  v1::BulkChunk chunk;
  Require(chunk.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
          "a frame is an encoding of its message");
  Require(chunk.transfer_id() == frame->transfer_id &&
              chunk.offset() == frame->offset &&
              chunk.has_crc32c() == frame->crc32c.has_value() &&
              chunk.crc32c() == frame->crc32c.value_or(0) &&
              chunk.payload() == payload &&
              chunk.has_hello() == frame->hello.has_value(),
          "which says the same");
  if (frame->transfer_id == 0 || frame->hello.has_value()) return;
  const std::string header =
      EncodeBulkHeader(frame->transfer_id, frame->offset, payload);
  const std::string again = header + payload;
  const absl::string_view piece = again;
  const absl::StatusOr<BulkFrame> echo =
      ParseBulkFrame(absl::MakeConstSpan(&piece, 1));
  Require(echo.ok() && echo->transfer_id == frame->transfer_id &&
              echo->offset == frame->offset &&
              echo->payload_bytes == payload.size() &&
              VerifyChecksum(*echo).ok(),
          "what is written can be read");
}

}  // namespace
}  // namespace djinn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  djinn::TestOne({reinterpret_cast<const char*>(data) + 1, size - 1},
                 1 + data[0]);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  if (size == 0 || seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  return 1 + djinn::fuzz::MutateEncoded<djinn::v1::BulkChunk>(
                 data + 1, size - 1, max_size - 1, seed / 2);
}
