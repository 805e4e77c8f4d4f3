// The raw frames of the Bulk stream: each is a valid encoding of v1::BulkChunk
// with the payload last, so that neither side copies tensor bytes through
// protobuf. Sending puts a small header in front of slices of the tensor;
// receiving finds the header in the first pieces and the payload in the rest.
//
// Knows no gRPC: callers pass views of their slices.
#ifndef COMMON_TRANSPORT_BULK_FRAME_H_
#define COMMON_TRANSPORT_BULK_FRAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

struct BulkFrame {
  // First frame of the client's direction only.
  std::optional<v1::BulkHello> hello;
  // 0 when the frame carries no chunk (a hello alone).
  uint64_t transfer_id = 0;
  uint64_t offset = 0;
  std::optional<uint32_t> crc32c;
  // In order; views of the pieces that were parsed.
  std::vector<absl::string_view> payload;
  uint64_t payload_bytes = 0;
};

// Frames above this are refused: one chunk and a generous header.
inline constexpr size_t kMaxBulkFrameBytes = (size_t{256} << 10) + 8192;

// The bytes that precede `payload` in a chunk's frame. With a checksum, unless
// the connection is encrypted and so protects the payload itself.
std::string EncodeBulkHeader(uint64_t transfer_id, uint64_t offset,
                             absl::string_view payload, bool encrypted = false);

// A whole frame with a hello and no chunk.
std::string EncodeBulkHello(const v1::BulkHello& hello);

// Takes a frame apart; `pieces` concatenated are the frame and must outlive the
// result. InvalidArgument (PROTOCOL_VIOLATION): not a BulkChunk with its
// payload last, or above kMaxBulkFrameBytes. The checksum is not looked at.
absl::StatusOr<BulkFrame> ParseBulkFrame(
    absl::Span<const absl::string_view> pieces);

// DataLoss (CHUNK_CORRUPT), naming transfer and offset, unless the payload has
// the frame's checksum, or the frame has none and came by an encrypted
// connection.
absl::Status VerifyChecksum(const BulkFrame& frame, bool encrypted = false);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_BULK_FRAME_H_
