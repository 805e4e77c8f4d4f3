// Bytes that move between a client and a worker without being copied, and the
// sizes in which they move. A leaf: it includes no protocol message.
#ifndef COMMON_TRANSPORT_SHARED_BYTES_H_
#define COMMON_TRANSPORT_SHARED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace djinn {

// A view of bytes together with the owner that keeps them alive. The bytes must
// not change while a copy of this struct exists.
struct SharedBytes {
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};

// Payload of one bulk chunk, every transport: so small that the sender's
// checksum, the network and the receiver's copy of a middling tensor overlap.
inline constexpr size_t kBulkChunkBytes = size_t{256} << 10;

// The size of an eager upload (v1::Install.content), at most. The copies that a
// message takes cost less than the round trips that they spare, unless the peer
// is_near().
inline constexpr size_t kMaxContentBytes = size_t{2} << 20;

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_BYTES_H_
