#include "common/hash/hash.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
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
constexpr size_t kSampleBlocks = 64;
constexpr size_t kSampleBlockBytes = 1 << 10;

// Keeps OpenSSL usable until the process is gone. Otherwise its first use
// registers an exit handler that frees what every hash and handshake needs, and
// threads of gRPC, of the session and of the check of TLS files, which run
// until the end, would use it afterwards. Only the first call in a process
// decides this. A static initialiser makes it, so that it precedes every use by
// Djinn, and it stands here, because every program of Djinn links this file. A
// library that used the same OpenSSL before keeps the handler (decision 0042).
[[maybe_unused]] const bool openssl_stays =
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;

XXH128_canonical_t HashBlock(const char* data, size_t size) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits(data, size));
  return bytes;
}

ContentHash ToContentHash(XXH128_hash_t hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

ContentHash HashContent(const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  if (size <= kHashBlockBytes) return ToContentHash(XXH3_128bits(bytes, size));
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

std::string HashSample(absl::string_view value) {
  XXH128_canonical_t hash;
  if (value.size() <= kSampleBlocks * kSampleBlockBytes) {
    hash = HashBlock(value.data(), value.size());
  } else {
    // The last block ends with the value.
    const size_t last = value.size() - kSampleBlockBytes;
    const size_t step = last / (kSampleBlocks - 1);
    ContentHasher hasher;
    for (size_t i = 0; i + 1 < kSampleBlocks; ++i) {
      hasher.Add(value.substr(i * step, kSampleBlockBytes));
    }
    hasher.Add(value.substr(last));
    const ContentHash sample = hasher.Hash();
    XXH128_canonicalFromHash(&hash, {sample.low, sample.high});
  }
  return std::string(reinterpret_cast<const char*>(hash.digest),
                     sizeof(hash.digest));
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
    XXH3_128bits_update(block_, part.data(), part.size());
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
