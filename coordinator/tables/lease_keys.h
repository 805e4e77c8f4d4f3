// Keeps the keys that sign leases: the current one and the one before it.
//
// A key signs for its lifetime; then another one takes over, once it is saved:
// the next process could not verify its signatures otherwise. The old one is
// retired when every lease that it signed has been issued again or has expired.
// Workers are told of all three kinds with every message.
//
// Not thread-safe; reads no clock.
#ifndef COORDINATOR_TABLES_LEASE_KEYS_H_
#define COORDINATOR_TABLES_LEASE_KEYS_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/lease/lease_signer.h"
#include "common/lease/lease_verifier.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

class LeaseKeys {
 public:
  struct Key {
    LeaseSigner signer;
    // When it began to sign; the current time, as long as it is not saved.
    absl::Time since;
    // The first save that has it; 0: an earlier process kept it.
    uint64_t save = 0;
  };

  // `overlap`: how long leases that a key signed may live. `random` outlives
  // this.
  LeaseKeys(RandomSource* random, absl::Duration lifetime,
            absl::Duration overlap)
      : random_(random), lifetime_(lifetime), overlap_(overlap) {}

  // Keys of an earlier process, the current one last.
  void Restore(std::deque<Key> keys);
  // Makes a key when there is none or the current one is too old, and retires
  // the one before it when it is time. `next_save` will have a new key. True
  // when something changed.
  bool Update(absl::Time now, uint64_t next_save);
  // The save is where the next process will find it, and so are those before.
  void NoteKept(uint64_t save) { kept_ = save; }

  // After Update(): the newest one that is kept, or the first one.
  const LeaseSigner& current() const;
  const std::deque<Key>& keys() const { return keys_; }
  void List(v1::DesiredState* desired) const;

  // Returns whether one of these keys, or one retired by this process, has the
  // id.
  bool Knows(const std::string& key_id) const {
    return verifier_.Knows(key_id);
  }
  // Verifies a lease as LeaseVerifier::Verify() does, by the keys that Knows()
  // knows.
  absl::StatusOr<v1::LeaseClaims> Verify(const v1::SignedLease& lease) const {
    return verifier_.Verify(lease);
  }

 private:
  void Learn(const Key& key);
  bool IsKept(const Key& key) const { return key.save <= kept_; }

  RandomSource* const random_;
  const absl::Duration lifetime_;
  const absl::Duration overlap_;
  std::deque<Key> keys_;
  uint64_t kept_ = 0;
  // The last ones.
  std::deque<std::string> retired_;
  LeaseVerifier verifier_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_LEASE_KEYS_H_
