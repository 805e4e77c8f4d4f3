#include "common/hash.h"

#include <openssl/sha.h>
#include <xxhash.h>
#if defined(__x86_64__)
// The same functions for the processor that is there: twice as fast as the ones
// for any, with AVX2 or AVX-512.
#include <xxh_x86dispatch.h>
#endif

namespace djinn {

ContentHash HashContent(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

uint64_t SampleContent(absl::string_view bytes) {
  constexpr size_t kPiece = 4096;
  std::string pieces;
  if (bytes.size() > 3 * kPiece) {
    const size_t middle = bytes.size() / 2;
    for (const size_t at : {size_t{0}, middle, bytes.size() - kPiece}) {
      pieces.append(bytes.data() + at, kPiece);
    }
    bytes = pieces;
  }
  const uint64_t sample = XXH3_64bits(bytes.data(), bytes.size());
  return sample != 0 ? sample : 1;
}

ContentHasher::ContentHasher() : state_(XXH3_createState()) {
  XXH3_128bits_reset(state_);
}

ContentHasher::~ContentHasher() { XXH3_freeState(state_); }

void ContentHasher::Add(absl::string_view bytes) {
  XXH3_128bits_update(state_, bytes.data(), bytes.size());
}

ContentHash ContentHasher::Hash() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return {hash.high64, hash.low64};
}

std::string Sha256(absl::string_view data) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace djinn
