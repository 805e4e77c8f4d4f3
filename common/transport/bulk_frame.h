// Defines the raw frames of the Bulk stream. Each is a valid encoding of
// v1::BulkChunk with the payload last, so that neither side copies tensor bytes
// through protobuf. The sender puts a small header in front of slices of the
// tensor. The receiver finds the header in the first pieces and the payload in
// the rest.
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
#include "djinn/v1/bulk.pb.h"

namespace djinn {

struct BulkFrame {
  // Present in the client's first frame only.
  std::optional<v1::BulkHello> hello;
  // 0 when the frame carries no chunk (a hello alone).
  uint64_t transfer_id = 0;
  uint64_t offset = 0;
  std::optional<uint32_t> crc32c;
  // Views of the parsed pieces, in order.
  std::vector<absl::string_view> payload;
  uint64_t payload_bytes = 0;
};

// Size of the largest accepted frame: one chunk and a generous header.
inline constexpr size_t kMaxBulkFrameBytes = (size_t{256} << 10) + 8192;

// Returns the bytes that precede `payload` in a chunk's frame. They have a
// checksum unless the connection is encrypted, which protects the payload
// itself.
std::string EncodeBulkHeader(uint64_t transfer_id, uint64_t offset,
                             absl::string_view payload, bool encrypted = false);

// Returns a whole frame with a hello and no chunk.
std::string EncodeBulkHello(const v1::BulkHello& hello);

// Parses a frame. The concatenated `pieces` are the frame and must outlive the
// result. Returns InvalidArgument (PROTOCOL_VIOLATION) unless the frame is a
// BulkChunk with its payload last of at most kMaxBulkFrameBytes. Does not
// verify the checksum.
absl::StatusOr<BulkFrame> ParseBulkFrame(
    absl::Span<const absl::string_view> pieces);

// Returns DataLoss (CHUNK_CORRUPT), which names transfer and offset, unless the
// payload has the frame's checksum, or the frame has none and came by an
// encrypted connection.
absl::Status VerifyChecksum(const BulkFrame& frame, bool encrypted = false);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_BULK_FRAME_H_
