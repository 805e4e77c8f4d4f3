// The keys that leases are signed with: the current one and the one before it.
//
// A key signs for its lifetime; then another one takes over, and the old one is
// retired when every lease that it signed has been issued again or has expired.
// Workers are told of all three kinds with every message.
//
// Not thread-safe; reads no clock.
#ifndef COORDINATOR_LEASE_KEYS_H_
#define COORDINATOR_LEASE_KEYS_H_

#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/lease/lease_signer.h"
#include "common/lease/lease_verifier.h"
#include "common/random.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

class LeaseKeys {
 public:
  struct Key {
    LeaseSigner signer;
    // When it began to sign.
    absl::Time since;
  };

  // `overlap`: how long leases that a key signed may live. `random` outlives
  // this.
  LeaseKeys(RandomSource* random, absl::Duration lifetime,
            absl::Duration overlap)
      : random_(random), lifetime_(lifetime), overlap_(overlap) {}

  // Keys of an earlier process, the current one last.
  void Restore(std::deque<Key> keys);
  // Makes a key when there is none or the current one is too old, and retires
  // the one before it when it is time. True when something changed.
  bool Update(absl::Time now);

  // After Update().
  const LeaseSigner& current() const { return keys_.back().signer; }
  const std::deque<Key>& keys() const { return keys_; }
  void List(v1::DesiredState* desired) const;

  // Whether one of these keys, or one retired by this process, has the id.
  bool Knows(const std::string& key_id) const {
    return verifier_.Knows(key_id);
  }
  // As LeaseVerifier::Verify(), by the keys that Knows() knows.
  absl::StatusOr<v1::LeaseClaims> Verify(const v1::SignedLease& lease) const {
    return verifier_.Verify(lease);
  }

 private:
  void Learn(const Key& key);

  RandomSource* const random_;
  const absl::Duration lifetime_;
  const absl::Duration overlap_;
  std::deque<Key> keys_;
  // The last ones.
  std::deque<std::string> retired_;
  LeaseVerifier verifier_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_LEASE_KEYS_H_
