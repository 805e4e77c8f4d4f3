// One direction of a shared-memory connection: a ring of frames between one
// writer and one reader in two processes that do not trust each other.
//
// The indices count bytes since the beginning and live in shared memory. Each
// side also keeps its own index in private memory and never reads it back. It
// checks the other side's index before use: an impossible index or header is
// DATA_LOSS (RING_CORRUPT), and nothing outside the ring is ever accessed. A
// header is copied before it is checked. A payload is returned in place, as
// bytes that the peer may still change, so callers must read them once, to copy
// them.
//
// Frames begin at multiples of kFrameAlignment, so that a header never wraps
// around; payloads do. Only one thread at a time uses each side.
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
  // Whether the message continues in the next frame.
  uint8_t more = 0;
  uint16_t zero = 0;
  // Transfer and position of a chunk.
  uint64_t transfer_id = 0;
  uint64_t offset = 0;
  uint64_t zero_too = 0;
};
inline constexpr size_t kFrameAlignment = sizeof(FrameHeader);
static_assert(kFrameAlignment == 32);

// The state that both sides of a ring share, besides its bytes. Zero at first.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  // Whether the writer wants to be woken when the ring is at most half full.
  std::atomic<uint32_t> writer_waits;
};

class FrameRingWriter {
 public:
  // `bytes` is a multiple of kFrameAlignment. `state` and `data` outlive the
  // writer.
  FrameRingWriter(RingState* state, char* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  // Returns the largest payload that always fits into a ring that is half
  // empty.
  size_t max_payload() const { return bytes_ / 2 - kFrameAlignment; }

  // Returns whether a frame with such a payload fits now.
  absl::StatusOr<bool> Fits(size_t payload_bytes);
  // Does what Fits() does. If the frame does not fit, the reader's Pop() will
  // return true once when there is room.
  absl::StatusOr<bool> FitsOrAwait(size_t payload_bytes);
  // Writes a frame that fits, and fills in the header's size.
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
    // One piece, or two if the payload wraps around.
    std::array<absl::string_view, 2> pieces;
    size_t piece_count = 0;

    absl::Span<const absl::string_view> payload() const {
      return absl::MakeConstSpan(pieces.data(), piece_count);
    }
  };

  FrameRingReader(RingState* state, const char* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  bool empty() const { return state_->written.load() == read_; }
  // Positions that the writer published, and that this side has reached.
  uint64_t written() const { return state_->written.load(); }
  uint64_t read() const { return read_; }
  // Shows the oldest frame, which stays valid until Pop(). Returns false when
  // there is none.
  absl::StatusOr<bool> Peek(Frame* frame);
  // Frees the frame's space. Returns true if the writer waits to be woken.
  bool Pop();

 private:
  RingState* const state_;
  const char* const data_;
  const size_t bytes_;
  uint64_t read_ = 0;
  // Size of the frame that Peek() showed.
  uint64_t frame_bytes_ = 0;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_FRAME_RING_H_
