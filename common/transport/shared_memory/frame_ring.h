// One direction of a shared-memory connection: a ring of frames between one
// writer and one reader in two processes that do not trust each other.
//
// The indices count bytes since the beginning and live in shared memory; each
// side keeps its own in private memory too, never reads it back, and checks
// the other's before use: an impossible index or header is DATA_LOSS
// (RING_CORRUPT), and nothing outside the ring is ever touched. A header is
// copied before it is looked at. A payload is handed out in place, as bytes
// that the peer may still change: whoever copies them once is safe.
//
// Frames begin at multiples of kFrameAlignment, so that a header never wraps
// around; payloads do. Each side is one thread at a time.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_FRAME_RING_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_FRAME_RING_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace djinn {

enum class FrameKind : uint8_t {
  // A serialized message, or a part of one.
  kMessage = 1,
  // A bulk chunk.
  kChunk = 2,
  // The end: a serialized google.rpc.Status.
  kEnd = 3,
};

struct FrameHeader {
  uint32_t payload_bytes = 0;
  FrameKind kind = FrameKind::kMessage;
  // The message goes on in the next frame.
  uint8_t more = 0;
  uint16_t zero = 0;
  // Of a chunk.
  uint64_t transfer_id = 0;
  uint64_t offset = 0;
  uint64_t zero_too = 0;
};
inline constexpr size_t kFrameAlignment = sizeof(FrameHeader);
static_assert(kFrameAlignment == 32);

// What both sides share of a ring, besides its bytes. Zero at first.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  // The writer wants to hear when the ring is at most half full.
  std::atomic<uint32_t> writer_waits;
};

class FrameRingWriter {
 public:
  // `bytes` is a multiple of kFrameAlignment. Both outlive the writer.
  FrameRingWriter(RingState* state, char* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  // The largest payload that always fits a ring that is half empty.
  size_t max_payload() const { return bytes_ / 2 - kFrameAlignment; }

  // Whether a frame with such a payload fits now.
  absl::StatusOr<bool> Fits(size_t payload_bytes);
  // The same; where it does not, the reader's Pop() will say once that there
  // is room.
  absl::StatusOr<bool> FitsOrAwait(size_t payload_bytes);
  // Writes a frame that fits; the header's size is filled in.
  void Write(FrameHeader header, absl::string_view payload);

 private:
  RingState* const state_;
  char* const data_;
  const size_t bytes_;
  uint64_t written_ = 0;
};

class FrameRingReader {
 public:
  struct Frame {
    FrameHeader header;
    // One unless the payload wraps around.
    std::array<absl::string_view, 2> pieces;
    size_t piece_count = 0;

    absl::Span<const absl::string_view> payload() const {
      return absl::MakeConstSpan(pieces.data(), piece_count);
    }
  };

  FrameRingReader(RingState* state, const char* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  bool empty() const { return state_->written.load() == read_; }
  // Where the writer says it is, and where this side is.
  uint64_t written() const { return state_->written.load(); }
  uint64_t read() const { return read_; }
  // The oldest frame, until Pop(). False when there is none.
  absl::StatusOr<bool> Peek(Frame* frame);
  // Gives the frame's room back. True: the writer waits to hear of it.
  bool Pop();

 private:
  RingState* const state_;
  const char* const data_;
  const size_t bytes_;
  uint64_t read_ = 0;
  // Of the frame that Peek() showed.
  uint64_t frame_bytes_ = 0;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_FRAME_RING_H_
