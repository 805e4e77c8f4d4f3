// Records which workers get no new leases, and when leases are next considered
// for migration.
//
// Invariant: every draining worker is cordoned. Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_MOVES_H_
#define COORDINATOR_TABLES_MOVES_H_

#include <set>
#include <string>

#include "absl/time/time.h"

namespace djinn::coordinator {

struct Moves {
  // Ids of cordoned workers, including those that are away.
  std::set<std::string> cordoned;
  // Workers whose sessions migrate to other workers.
  std::set<std::string> draining;
  // When rebalancing is due, and the id of the last lease that it considered.
  absl::Duration next_rebalance;
  std::string last_rebalanced;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_MOVES_H_
