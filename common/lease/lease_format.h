// Defines the signed form that signer and verifier must agree on.
#ifndef COMMON_LEASE_LEASE_FORMAT_H_
#define COMMON_LEASE_LEASE_FORMAT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn::lease_internal {

inline constexpr size_t kPublicKeyBytes = 32;
inline constexpr size_t kSignatureBytes = 64;

// Returns the bytes to sign. Every other message of Djinn that any key signs
// begins differently, so no signature fits two kinds of message.
inline std::string SignedBytes(absl::string_view claims) {
  constexpr char kDomain[] = "djinn.v1.LeaseClaims";
  // The domain includes its terminating zero.
  return absl::StrCat(absl::string_view(kDomain, sizeof(kDomain)), claims);
}

// Returns the id of a public key.
std::string KeyId(absl::string_view public_key);

}  // namespace djinn::lease_internal

#endif  // COMMON_LEASE_LEASE_FORMAT_H_
