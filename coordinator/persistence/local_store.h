// What stores of one process have in common: leases as entries.
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

 protected:
  // Called one at a time.
  virtual absl::StatusOr<std::vector<Entry>> Read(absl::string_view prefix) = 0;
  // The keys are well-formed and differ.
  virtual absl::StatusOr<uint64_t> Commit(absl::Span<const Write> writes) = 0;

  // Lets every lease expire, whoever holds it.
  absl::Status EndLeases();
  // Aborted (STORE_CONFLICT) unless `version` is as expected.
  static absl::Status CheckVersion(const Write& write, uint64_t version);

 private:
  absl::StatusOr<uint64_t> PutLocked(absl::Span<const Write> writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // One call at a time.
  Mutex mu_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LOCAL_STORE_H_
