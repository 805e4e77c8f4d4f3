#include "common/transport/shared_memory/frame_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

uint64_t FrameBytes(uint64_t payload_bytes) {
  const uint64_t bytes = kFrameAlignment + payload_bytes;
  return (bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

absl::Status Corrupt(absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "RING_CORRUPT",
                   absl::StrCat("the peer broke the shared memory: ", what));
}

}  // namespace

absl::StatusOr<bool> FrameRingWriter::Fits(size_t payload_bytes) {
  const uint64_t used = written_ - state_->read.load();
  if (used > bytes_) return Corrupt("it read what was not written");
  return FrameBytes(payload_bytes) <= bytes_ - used;
}

absl::StatusOr<bool> FrameRingWriter::FitsOrAwait(size_t payload_bytes) {
  DJINN_ASSIGN_OR_RETURN(const bool fits, Fits(payload_bytes));
  if (fits) return true;
  state_->writer_waits.store(1);
  // The reader may have made room before it could see the flag.
  return Fits(payload_bytes);
}

void FrameRingWriter::Write(FrameHeader header, absl::string_view payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::memcpy(data_ + written_ % bytes_, &header, sizeof(header));
  const size_t start = (written_ + sizeof(header)) % bytes_;
  const size_t first = std::min(payload.size(), bytes_ - start);
  if (first > 0) std::memcpy(data_ + start, payload.data(), first);
  if (payload.size() > first) {
    std::memcpy(data_, payload.data() + first, payload.size() - first);
  }
  written_ += FrameBytes(payload.size());
  state_->written.store(written_);
}

absl::StatusOr<bool> FrameRingReader::Peek(Frame* frame) {
  const uint64_t available = state_->written.load() - read_;
  if (available == 0) return false;
  if (available > bytes_ || available % kFrameAlignment != 0) {
    return Corrupt("an impossible index");
  }
  FrameHeader& header = frame->header;
  std::memcpy(&header, data_ + read_ % bytes_, sizeof(header));
  frame_bytes_ = FrameBytes(header.payload_bytes);
  if (frame_bytes_ > available) return Corrupt("a frame without an end");
  if (header.kind < FrameKind::kMessage || header.kind > FrameKind::kEnd ||
      header.more > 1 || header.zero != 0 || header.zero_too != 0) {
    return Corrupt("a frame of no known kind");
  }
  const size_t start = (read_ + sizeof(header)) % bytes_;
  const size_t first = std::min<size_t>(header.payload_bytes, bytes_ - start);
  frame->pieces[0] = absl::string_view(data_ + start, first);
  frame->pieces[1] = absl::string_view(data_, header.payload_bytes - first);
  frame->piece_count = header.payload_bytes > first ? 2 : 1;
  return true;
}

bool FrameRingReader::Pop() {
  read_ += frame_bytes_;
  frame_bytes_ = 0;
  state_->read.store(read_);
  if (state_->writer_waits.load() == 0) return false;
  if (state_->written.load() - read_ > bytes_ / 2) return false;
  return state_->writer_waits.exchange(0) != 0;
}

}  // namespace djinn
