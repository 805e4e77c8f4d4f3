#include "common/transport/bulk_frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/hash/crc32c.h"

namespace djinn {
namespace {

// Field numbers of v1::BulkChunk.
constexpr uint64_t kHello = 1;
constexpr uint64_t kTransferId = 2;
constexpr uint64_t kOffset = 3;
constexpr uint64_t kChecksum = 4;
constexpr uint64_t kPayload = 15;

enum WireType : uint64_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kFixed32 = 5
};

constexpr size_t kMaxHelloBytes = 4096;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint64_t field, WireType type, std::string* out) {
  AppendVarint(field << 3 | type, out);
}

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   absl::StrCat("bulk frame: ", what));
}

// Reads across the boundaries of pieces.
class Cursor {
 public:
  explicit Cursor(absl::Span<const absl::string_view> pieces)
      : pieces_(pieces) {
    for (absl::string_view piece : pieces) left_ += piece.size();
    SkipEmpty();
  }

  uint64_t left() const { return left_; }

  bool Byte(uint8_t* value) {
    if (left_ == 0) return false;
    *value = static_cast<uint8_t>(pieces_[piece_][at_]);
    Advance(1);
    return true;
  }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte;
      if (!Byte(&byte)) return false;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Reads a tag as protobuf does: at most five bytes, and 32 bits.
  bool Tag(uint64_t* value) {
    const uint64_t before = left_;
    return Varint(value) && before - left_ <= 5 && *value >> 32 == 0;
  }

  bool Fixed32(uint32_t* value) {
    *value = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      uint8_t byte;
      if (!Byte(&byte)) return false;
      *value |= static_cast<uint32_t>(byte) << shift;
    }
    return true;
  }

  // Calls `take(view)` for the next `count` bytes, piece by piece.
  template <typename Take>
  bool Views(uint64_t count, Take&& take) {
    if (count > left_) return false;
    while (count > 0) {
      const size_t step =
          std::min<uint64_t>(count, pieces_[piece_].size() - at_);
      take(pieces_[piece_].substr(at_, step));
      count -= step;
      Advance(step);
    }
    return true;
  }

 private:
  void Advance(size_t count) {
    at_ += count;
    left_ -= count;
    SkipEmpty();
  }
  void SkipEmpty() {
    while (piece_ < pieces_.size() && at_ == pieces_[piece_].size()) {
      ++piece_;
      at_ = 0;
    }
  }

  const absl::Span<const absl::string_view> pieces_;
  size_t piece_ = 0;
  size_t at_ = 0;
  uint64_t left_ = 0;
};

bool SkipField(uint64_t type, Cursor* cursor) {
  uint64_t count = 0;
  switch (type) {
    case kVarint:
      return cursor->Varint(&count);
    case kFixed64:
      count = 8;
      break;
    case kFixed32:
      count = 4;
      break;
    case kBytes:
      if (!cursor->Varint(&count)) return false;
      break;
    default:
      return false;
  }
  return cursor->Views(count, [](absl::string_view) {});
}

}  // namespace

std::string EncodeBulkHeader(uint64_t transfer_id, uint64_t offset,
                             absl::string_view payload, bool encrypted) {
  std::string header;
  header.reserve(40);
  AppendTag(kTransferId, kVarint, &header);
  AppendVarint(transfer_id, &header);
  if (offset != 0) {
    AppendTag(kOffset, kVarint, &header);
    AppendVarint(offset, &header);
  }
  if (!encrypted) {
    const uint32_t crc = Crc32c(payload);
    AppendTag(kChecksum, kFixed32, &header);
    for (int shift = 0; shift < 32; shift += 8) {
      header.push_back(static_cast<char>(crc >> shift));
    }
  }
  AppendTag(kPayload, kBytes, &header);
  AppendVarint(payload.size(), &header);
  return header;
}

std::string EncodeBulkHello(const v1::BulkHello& hello) {
  v1::BulkChunk chunk;
  *chunk.mutable_hello() = hello;
  return chunk.SerializeAsString();
}

absl::StatusOr<BulkFrame> ParseBulkFrame(
    absl::Span<const absl::string_view> pieces) {
  Cursor cursor(pieces);
  if (cursor.left() > kMaxBulkFrameBytes) return Malformed("too large");
  BulkFrame frame;
  while (cursor.left() > 0) {
    uint64_t tag;
    uint64_t count;
    if (!cursor.Tag(&tag)) return Malformed("broken tag");
    if (tag == (kHello << 3 | kBytes)) {
      std::string bytes;
      if (!cursor.Varint(&count) || count > kMaxHelloBytes ||
          !cursor.Views(count,
                        [&bytes](absl::string_view view) {
                          bytes.append(view.data(), view.size());
                        }) ||
          !frame.hello.emplace().ParseFromString(bytes)) {
        return Malformed("broken hello");
      }
    } else if (tag == (kTransferId << 3 | kVarint)) {
      if (!cursor.Varint(&frame.transfer_id)) return Malformed("broken id");
    } else if (tag == (kOffset << 3 | kVarint)) {
      if (!cursor.Varint(&frame.offset)) return Malformed("broken offset");
    } else if (tag == (kChecksum << 3 | kFixed32)) {
      if (!cursor.Fixed32(&frame.crc32c.emplace()))
        return Malformed("broken checksum");
    } else if (tag == (kPayload << 3 | kBytes)) {
      if (!cursor.Varint(&count) || count != cursor.left()) {
        return Malformed("the payload is not last");
      }
      frame.payload_bytes = count;
      cursor.Views(count, [&frame](absl::string_view view) {
        frame.payload.push_back(view);
      });
    } else if (tag < 8 || !SkipField(tag & 7, &cursor)) {
      return Malformed("broken field");
    }
  }
  if (frame.transfer_id == 0 && frame.payload_bytes != 0) {
    return Malformed("payload without a transfer");
  }
  return frame;
}

absl::Status VerifyChecksum(const BulkFrame& frame, bool encrypted) {
  if (!frame.crc32c.has_value() && encrypted) return absl::OkStatus();
  uint32_t crc = 0;
  for (absl::string_view piece : frame.payload) {
    crc = ExtendCrc32c(crc, piece);
  }
  if (crc == frame.crc32c) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kDataLoss, "CHUNK_CORRUPT",
      absl::StrCat(
          "transfer ", frame.transfer_id, " offset ", frame.offset,
          frame.crc32c.has_value() ? ": checksum differs" : ": no checksum"));
}

}  // namespace djinn
