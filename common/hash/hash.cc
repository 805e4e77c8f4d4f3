#include "common/hash/hash.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
// Needed for states that are not allocated.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__x86_64__)
// Chooses the functions for the processor at run time. With AVX2 or AVX-512
// they are twice as fast as the portable ones.
#include <xxh_x86dispatch.h>
#endif

namespace djinn {

namespace {

constexpr size_t kLeastForTwo = 4 << 20;
constexpr size_t kCacheLine = 64;
// Stretches are prefetched together, two of them ahead of the hash. Without
// that, a single hashing thread waits for memory a third of the time.
constexpr size_t kStretch = 4096;

void Update(XXH3_state_t* state, const char* data, size_t size) {
  for (size_t begin = 0; begin < size; begin += kStretch) {
    const size_t ahead = begin + 2 * kStretch;
    for (size_t i = ahead; i < std::min(ahead + kStretch, size);
         i += kCacheLine) {
      __builtin_prefetch(data + i, /*rw=*/0, /*locality=*/2);
    }
    XXH3_128bits_update(state, data + begin, std::min(kStretch, size - begin));
  }
}

XXH128_hash_t HashPiece(const char* data, size_t size) {
  if (size <= 2 * kStretch) return XXH3_128bits(data, size);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  Update(&state, data, size);
  return XXH3_128bits_digest(&state);
}

XXH128_canonical_t HashBlock(const char* data, size_t size) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, HashPiece(data, size));
  return bytes;
}

ContentHash ToContentHash(XXH128_hash_t hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

ContentHash HashContent(const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  if (size <= kHashBlockBytes) return ToContentHash(HashPiece(bytes, size));
  std::vector<XXH128_canonical_t> hashes((size + kHashBlockBytes - 1) /
                                         kHashBlockBytes);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i;
         (i = next.fetch_add(1, std::memory_order_relaxed)) < hashes.size();) {
      const size_t begin = i * kHashBlockBytes;
      hashes[i] =
          HashBlock(bytes + begin, std::min(kHashBlockBytes, size - begin));
    }
  };
  std::thread other;
  if (size >= kLeastForTwo && std::thread::hardware_concurrency() > 1) {
    try {
      other = std::thread(work);
    } catch (const std::system_error&) {
      // If no further thread can be started, this one hashes everything.
    }
  }
  work();
  if (other.joinable()) other.join();
  return ToContentHash(
      XXH3_128bits(hashes.data(), hashes.size() * sizeof(hashes[0])));
}

ContentHasher::ContentHasher()
    : block_(XXH3_createState()), blocks_(XXH3_createState()) {
  XXH3_128bits_reset(block_);
  XXH3_128bits_reset(blocks_);
}

ContentHasher::~ContentHasher() {
  XXH3_freeState(block_);
  XXH3_freeState(blocks_);
}

void ContentHasher::Add(absl::string_view bytes) {
  while (!bytes.empty()) {
    // A block ends when more bytes come, because a single block is hashed
    // directly.
    if (in_block_ == kHashBlockBytes) EndBlock();
    const absl::string_view part = bytes.substr(0, kHashBlockBytes - in_block_);
    Update(block_, part.data(), part.size());
    in_block_ += part.size();
    bytes.remove_prefix(part.size());
  }
}

void ContentHasher::EndBlock() {
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(block_));
  XXH3_128bits_update(blocks_, &hash, sizeof(hash));
  XXH3_128bits_reset(block_);
  in_block_ = 0;
  ++ended_;
}

ContentHash ContentHasher::Hash() {
  if (ended_ == 0) return ToContentHash(XXH3_128bits_digest(block_));
  EndBlock();
  return ToContentHash(XXH3_128bits_digest(blocks_));
}

std::string Sha256(absl::string_view data) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

bool TokensEqual(absl::string_view a, absl::string_view b) {
  const std::string hash_a = Sha256(a);
  const std::string hash_b = Sha256(b);
  return CRYPTO_memcmp(hash_a.data(), hash_b.data(), hash_a.size()) == 0;
}

}  // namespace djinn
