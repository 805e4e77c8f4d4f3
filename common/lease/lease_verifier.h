// Checks who signed a lease, with public keys only.
//
// Keys are learned and retired by name. A message that does not list a key
// leaves the key known. Beyond kMaxKeys, the key that was learned first is
// forgotten.
//
// Thread-safe. A check takes about ten microseconds and holds no lock.
#ifndef COMMON_LEASE_LEASE_VERIFIER_H_
#define COMMON_LEASE_LEASE_VERIFIER_H_

#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "djinn/v1/lease.pb.h"

namespace djinn {

class LeaseVerifier {
 public:
  static constexpr size_t kMaxKeys = 8;

  // Adds a key. Has no effect for a key that is known or was retired. Returns
  // InvalidArgument (MALFORMED_KEY) for bytes that are not a key, or whose id
  // is another.
  absl::Status Learn(const v1::LeaseKey& key);
  void Retire(const std::string& key_id);
  bool Knows(const std::string& key_id) const;

  // Returns the contents of the lease. Returns Unauthenticated (LEASE_UNKNOWN)
  // unless a known key signed exactly these contents.
  absl::StatusOr<v1::LeaseClaims> Verify(const v1::SignedLease& lease) const;

 private:
  struct Key {
    std::string id;
    // An EVP_PKEY; null when the key was retired.
    std::shared_ptr<void> key;
  };
  const Key* Find(const std::string& key_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // In the order in which they were learned.
  std::deque<Key> keys_ ABSL_GUARDED_BY(mu_);
};

// Parses the lease in a Hello. Returns Unauthenticated (LEASE_UNKNOWN) when it
// does not parse.
absl::StatusOr<v1::SignedLease> ParseLeaseToken(absl::string_view token);

// Returns a lease's claims without a check. Use it for leases that were
// checked, or where the claims decide nothing. Empty when there are none.
v1::LeaseClaims UncheckedClaims(const v1::SignedLease& lease);

}  // namespace djinn

#endif  // COMMON_LEASE_LEASE_VERIFIER_H_
