#include "common/hash/constant_time.h"

#include <openssl/crypto.h>

#include <string>

#include "common/hash/hash.h"

namespace djinn {

bool TokensEqual(absl::string_view a, absl::string_view b) {
  const std::string hash_a = Sha256(a);
  const std::string hash_b = Sha256(b);
  return CRYPTO_memcmp(hash_a.data(), hash_b.data(), hash_a.size()) == 0;
}

}  // namespace djinn
