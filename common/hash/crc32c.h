// Computes CRC-32C (Castagnoli), the checksum of bulk chunks, with the
// processor's instruction if it has one.
#ifndef COMMON_HASH_CRC32C_H_
#define COMMON_HASH_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace djinn {

// The checksum of `a` followed by `b` is ExtendCrc32c(ExtendCrc32c(0, a), b).
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

inline uint32_t Crc32c(absl::string_view bytes) {
  return ExtendCrc32c(0, bytes);
}

namespace internal {
// The portable implementation, for machines without the instruction.
uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view bytes);
}  // namespace internal

}  // namespace djinn

#endif  // COMMON_HASH_CRC32C_H_
