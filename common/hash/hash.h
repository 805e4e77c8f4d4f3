// Defines the two hashes of the system: XXH3-128 finds bytes fast (a hint,
// never a proof), and SHA-256 names graphs.
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

// Longer contents are hashed in blocks of this size, and their hash is that of
// the blocks' hashes, so that several threads can share the work.
inline constexpr size_t kHashBlockBytes = 1 << 20;

// Returns the XXH3-128 of the bytes. For more than one block, returns the
// XXH3-128 of the blocks' XXH3-128 in order, each in the 16 big-endian bytes of
// its canonical form. Reads memory as fast as one core can, or two cores from 4
// MiB on.
ContentHash HashContent(const void* data, size_t size);

// Returns the XXH3-128 of the value in its 16 big-endian bytes. Of a value
// above 64 KiB, hashes only 64 blocks of 1 KiB, which are spread evenly over
// it: a few microseconds for a value of any size. Two values that differ in one
// element may therefore have the same hash (ReadReply.hash).
std::string HashSample(absl::string_view value);

// Computes the same hash as HashContent() of bytes that come piece by piece.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Add(absl::string_view bytes);
  // Returns the hash when all bytes have come. Called once.
  ContentHash Hash();

 private:
  void EndBlock();

  // States of the current block, and of the hashes of the blocks before it.
  XXH3_state_s* const block_;
  XXH3_state_s* const blocks_;
  size_t in_block_ = 0;
  uint64_t ended_ = 0;
};

// Returns the SHA-256 of `data`, 32 bytes.
std::string Sha256(absl::string_view data);

// Returns whether the secrets are equal, in a time that reveals neither where
// they differ nor how long the expected one is.
bool TokensEqual(absl::string_view a, absl::string_view b);

}  // namespace djinn

#endif  // COMMON_HASH_HASH_H_
