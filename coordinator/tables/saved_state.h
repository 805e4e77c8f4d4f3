// The cluster's state on disk: what was saved, and what an earlier process
// left.
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
  // Empty: not known.
  std::string worker_id;
  // The tenant, and what the lease holds of its quota.
  std::string tenant;
  scheduler::Amounts quota = {};
};

struct EarlierProcess {
  // Nothing is known of an earlier process.
  bool none = true;
  // Its leases, by id, until they are adopted, or their workers or sessions
  // have come or gone without them.
  std::map<std::string, RestoredLease> leases;
  // Workers that had them, and the phases of their work, bit N for phase N,
  // until they have joined or are given up: they may serve on. Workers that are
  // not known share an empty name.
  std::map<std::string, uint32_t> workers;
  // When both are given up; infinite once they are.
  absl::Duration until = absl::InfiniteDuration();
};

struct Saving {
  // How often the state was saved, and the last save that is kept.
  uint64_t saves = 0;
  uint64_t kept = 0;
  // When the tuning cache is encoded again, if it has learned something.
  absl::Duration next_learned;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SAVED_STATE_H_
