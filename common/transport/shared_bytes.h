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

// Size of the payload of one bulk chunk on every transport. It is so small that
// the sender's checksum, the network and the receiver's copy overlap even for a
// tensor of medium size.
inline constexpr size_t kBulkChunkBytes = size_t{256} << 10;

// Largest size of an eager upload (v1::Install.content). Up to this size, the
// copies that a message takes cost less than the round trips that they save,
// unless the peer is_near().
inline constexpr size_t kMaxContentBytes = size_t{2} << 20;

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_BYTES_H_
