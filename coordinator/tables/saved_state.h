// Records which state is on disk, and what an earlier process left.
//
// Invariant: a lease is in `EarlierProcess::leases` or in the lease table,
// never in both. Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_SAVED_STATE_H_
#define COORDINATOR_TABLES_SAVED_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator {

// A lease of an earlier process that no worker has reported to this one.
struct RestoredLease {
  v1::StoredLease lease;
  // Empty when the worker is not known.
  std::string worker_id;
  // The tenant, and what the lease holds of its quota.
  std::string tenant;
  scheduler::Amounts quota = {};
};

struct EarlierProcess {
  // True when no state of an earlier process was restored.
  bool none = true;
  // The earlier process's leases by id, until they are adopted, until their
  // workers join without them, or until their sessions end.
  std::map<std::string, RestoredLease> leases;
  // Workers that had those leases, until they join or are given up, because
  // they may still serve. The value has bit N set for phase N of their work.
  // Workers that are not known share an empty name.
  std::map<std::string, uint32_t> workers;
  // When `leases` and `workers` are given up, monotonic; infinite once they
  // are.
  absl::Duration until = absl::InfiniteDuration();
};

struct Saving {
  // The number of saves so far, and the last save that is kept.
  uint64_t saves = 0;
  uint64_t kept = 0;
  // Monotonic time before which the tuning cache is not encoded again.
  absl::Duration next_learned;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SAVED_STATE_H_
