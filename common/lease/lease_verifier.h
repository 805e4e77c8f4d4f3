// Checks who signed a lease, knowing public keys only.
//
// Keys are learned and retired by name, never forgotten because somebody did
// not mention them. Of more than kMaxKeys the one learned first goes.
//
// Thread-safe. Checking takes some ten microseconds, and no lock is held
// meanwhile.
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

  // Without effect for a key that is known or was retired. InvalidArgument
  // (MALFORMED_KEY) for bytes that are no key, or whose id is another.
  absl::Status Learn(const v1::LeaseKey& key);
  void Retire(const std::string& key_id);
  bool Knows(const std::string& key_id) const;

  // What the lease says. Unauthenticated (LEASE_UNKNOWN) unless a known key
  // signed exactly this.
  absl::StatusOr<v1::LeaseClaims> Verify(const v1::SignedLease& lease) const;

 private:
  struct Key {
    std::string id;
    // An EVP_PKEY; null when it was retired.
    std::shared_ptr<void> key;
  };
  const Key* Find(const std::string& key_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // In the order of learning.
  std::deque<Key> keys_ ABSL_GUARDED_BY(mu_);
};

// A lease as it stands in a Hello. Unauthenticated (LEASE_UNKNOWN) when it is
// none.
absl::StatusOr<v1::SignedLease> ParseLeaseToken(absl::string_view token);

// What a lease claims, believed without a check: for leases that were checked,
// or whose claims decide nothing. Empty when there are none.
v1::LeaseClaims UncheckedClaims(const v1::SignedLease& lease);

}  // namespace djinn

#endif  // COMMON_LEASE_LEASE_VERIFIER_H_
