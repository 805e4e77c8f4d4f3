// Keeps the keys that sign leases: the current one and the one before it.
//
// A key signs for its lifetime. Then another key takes over, but only after
// that key is saved: otherwise the next process could not verify its
// signatures. The old key is retired when every lease that it signed has been
// signed again or has expired. Every message to a worker lists the keys and the
// retired ones.
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
    // When the key began to sign; the current time as long as it is not saved.
    absl::Time since;
    // The number of the first save that has the key; 0 if an earlier process
    // kept it.
    uint64_t save = 0;
  };

  // `overlap` is how long a lease that a key signed may live. `random` must
  // outlive this.
  LeaseKeys(RandomSource* random, absl::Duration lifetime,
            absl::Duration overlap)
      : random_(random), lifetime_(lifetime), overlap_(overlap) {}

  // Takes over the keys of an earlier process, the current one last.
  void Restore(std::deque<Key> keys);
  // Makes a key when there is none or the current one is too old, and retires
  // the one before it when it is time. A new key will be part of the save
  // `next_save`. Returns whether anything changed.
  bool Update(absl::Time now, uint64_t next_save);
  // Notes that the save, and every earlier one, is where the next process will
  // find it.
  void NoteKept(uint64_t save) { kept_ = save; }

  // Returns the newest key that is kept; the first one if none is. Call
  // Update() before.
  const LeaseSigner& current() const;
  const std::deque<Key>& keys() const { return keys_; }
  // Adds the keys and the retired keys' ids to a message for a worker.
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
  // Ids of the last retired keys.
  std::deque<std::string> retired_;
  LeaseVerifier verifier_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_LEASE_KEYS_H_
