// Signs leases with one Ed25519 key.
//
// Immutable, hence thread-safe. The seed is secret; it leaves the object only
// through seed(), for storage.
#ifndef COMMON_LEASE_LEASE_SIGNER_H_
#define COMMON_LEASE_LEASE_SIGNER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/lease.pb.h"

namespace djinn {

class LeaseSigner {
 public:
  static constexpr size_t kSeedBytes = 32;

  // Returns InvalidArgument (MALFORMED_KEY) unless `seed` is 32 bytes.
  static absl::StatusOr<LeaseSigner> FromSeed(absl::string_view seed);

  v1::SignedLease Sign(const v1::LeaseClaims& claims) const;

  // Returns the key that verifiers need.
  const v1::LeaseKey& public_key() const { return public_key_; }
  const std::string& id() const { return public_key_.key_id(); }
  const std::string& seed() const { return seed_; }

 private:
  LeaseSigner() = default;

  std::string seed_;
  // An EVP_PKEY.
  std::shared_ptr<void> key_;
  v1::LeaseKey public_key_;
};

}  // namespace djinn

#endif  // COMMON_LEASE_LEASE_SIGNER_H_
