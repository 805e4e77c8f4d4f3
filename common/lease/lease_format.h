// Defines the signed form that signer and verifier must agree on.
#ifndef COMMON_LEASE_LEASE_FORMAT_H_
#define COMMON_LEASE_LEASE_FORMAT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn::lease_internal {

inline constexpr size_t kPublicKeyBytes = 32;
inline constexpr size_t kSignatureBytes = 64;

// Returns the bytes that are signed. No other message of Djinn begins like
// them, whatever key it is signed with.
inline std::string SignedBytes(absl::string_view claims) {
  constexpr char kDomain[] = "djinn.v1.LeaseClaims";
  // The domain includes its terminating zero.
  return absl::StrCat(absl::string_view(kDomain, sizeof(kDomain)), claims);
}

// Returns the id of a public key.
std::string KeyId(absl::string_view public_key);

}  // namespace djinn::lease_internal

#endif  // COMMON_LEASE_LEASE_FORMAT_H_
