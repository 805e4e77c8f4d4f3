// Decides whether a virtual device should migrate to another worker.
//
// The model assumes that the device repeats its recent work for the horizon:
//
//   stay = horizon
//   go   = horizon x (queue there + compute there) / (queue here + compute
//   here)
//          + state / link + setup
//
// where the link is the measured one from here to there, or else the configured
// one.
//
// The device migrates if `go` is smaller than `stay` by a margin, so that
// uncertainty does not move it back and forth. A device that a filter excludes
// from its worker migrates at any cost. Prefill and decode on different workers
// are a special case: the new phase's time on either worker decides (the rule
// of llm-d and Splitwise, with the horizon in place of the remaining tokens).
#ifndef SCHEDULER_PLACEMENT_MIGRATION_H_
#define SCHEDULER_PLACEMENT_MIGRATION_H_

#include <cstdint>

#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

struct MigrationTerms {
  // Infinite when a filter excludes the device from its worker.
  double stay_seconds = 0;
  double go_seconds = 0;
  uint64_t state_bytes = 0;
  double transfer_seconds = 0;
  bool pays = false;
};

// Compares staying with migrating; `there.missing_bytes` have to move. `fit`
// says that no filter excludes the device from its present worker. Without
// known work no migration pays.
MigrationTerms WeighMigration(const Terms& here, bool fit, const Terms& there);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_MIGRATION_H_
