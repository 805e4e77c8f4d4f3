// What signer and verifier must agree on.
#ifndef COMMON_LEASE_LEASE_FORMAT_H_
#define COMMON_LEASE_LEASE_FORMAT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn::lease_internal {

inline constexpr size_t kPublicKeyBytes = 32;
inline constexpr size_t kSignatureBytes = 64;

// No other message of ours begins so, whatever key it may be signed with.
inline std::string SignedBytes(absl::string_view claims) {
  constexpr char kDomain[] = "djinn.v1.LeaseClaims";
  // With the zero at the end.
  return absl::StrCat(absl::string_view(kDomain, sizeof(kDomain)), claims);
}

// Of a public key.
std::string KeyId(absl::string_view public_key);

}  // namespace djinn::lease_internal

#endif  // COMMON_LEASE_LEASE_FORMAT_H_
