// The two hashes of the system: XXH3-128 to find bytes fast (a hint, never
// proof), SHA-256 to name graphs.
#ifndef COMMON_HASH_HASH_H_
#define COMMON_HASH_HASH_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace djinn {

struct ContentHash {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const ContentHash& a, const ContentHash& b) {
    return a.high == b.high && a.low == b.low;
  }
  template <typename H>
  friend H AbslHashValue(H h, const ContentHash& hash) {
    return H::combine(std::move(h), hash.high, hash.low);
  }
};

// Of what is longer than a block, the hash is that of its blocks' hashes, so
// that several threads can share the work.
inline constexpr size_t kHashBlockBytes = 1 << 20;

// XXH3-128, or, of more than a block, XXH3-128 of the blocks' XXH3-128 in their
// order, each in its 16 bytes of the canonical form, big-endian. Reads as fast
// as memory lets one core, or, from 4 MiB on, two.
ContentHash HashContent(const void* data, size_t size);

// The same of bytes that come piece by piece.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Add(absl::string_view bytes);
  // Once, when all has come.
  ContentHash Hash();

 private:
  void EndBlock();

  // Of the block that is begun, and of the blocks before.
  XXH3_state_s* const block_;
  XXH3_state_s* const blocks_;
  size_t in_block_ = 0;
  uint64_t ended_ = 0;
};

// 32 bytes.
std::string Sha256(absl::string_view data);

}  // namespace djinn

#endif  // COMMON_HASH_HASH_H_
