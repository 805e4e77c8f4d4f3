// Proves that a peer has certain bytes, by a MAC of all of them under a random
// key that the other side drew for this one proof.
//
// A peer that knows the key and not every byte can do no better than guess the
// missing ones: GMAC is a polynomial in the key, so two different contents of n
// bytes have the same MAC for one key in 2^128 / n. The key is used once, so
// the nonce may be fixed. One core processes about 5 GB/s.
#ifndef COMMON_HASH_CONTENT_PROOF_H_
#define COMMON_HASH_CONTENT_PROOF_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace djinn {

inline constexpr size_t kContentKeyBytes = 16;
inline constexpr size_t kContentMacBytes = 16;

// Computes the MAC of bytes that come piece by piece. Not thread-safe.
class ContentMac {
 public:
  // `key` has kContentKeyBytes.
  explicit ContentMac(absl::string_view key);

  void Add(absl::string_view bytes);
  // Returns kContentMacBytes, or an empty string, which proves nothing, when
  // OpenSSL failed. Called once.
  std::string Finish();

 private:
  // An EVP_MAC_CTX; null after a failure.
  std::shared_ptr<void> context_;
};

// Returns the MAC of `bytes`. Empty also for a key of another size.
std::string ProveContent(absl::string_view key, absl::string_view bytes);

}  // namespace djinn

#endif  // COMMON_HASH_CONTENT_PROOF_H_
