// Implements the leases of a store that one process uses, as entries of the
// store.
#ifndef COORDINATOR_PERSISTENCE_LOCAL_STORE_H_
#define COORDINATOR_PERSISTENCE_LOCAL_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "coordinator/persistence/store.h"

namespace djinn::coordinator {

class LocalStore : public Store {
 public:
  absl::StatusOr<std::vector<Entry>> Get(absl::string_view prefix) override;
  absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) override;
  absl::StatusOr<Lease> Acquire(absl::string_view name, absl::string_view owner,
                                absl::Time now, absl::Duration ttl) override;
  absl::Status Release(absl::string_view name,
                       absl::string_view owner) override;

 protected:
  // Read() and Commit() are called one at a time.
  virtual absl::StatusOr<std::vector<Entry>> Read(absl::string_view prefix) = 0;
  // Applies the writes, whose keys are well-formed and differ.
  virtual absl::StatusOr<uint64_t> Commit(absl::Span<const Write> writes) = 0;

  // Lets every lease expire, regardless of its owner.
  absl::Status EndLeases();
  // Returns Aborted (STORE_CONFLICT) unless the write expects any version or
  // this one.
  static absl::Status CheckVersion(const Write& write, uint64_t version);

 private:
  struct StoredLease;
  // Reads the lease under `key`, and the key's version into `version`, 0 for a
  // lease that was never held.
  absl::StatusOr<StoredLease> ReadLease(const std::string& key,
                                        uint64_t* version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<uint64_t> PutLocked(absl::Span<const Write> writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Serialises all calls.
  Mutex mu_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LOCAL_STORE_H_
