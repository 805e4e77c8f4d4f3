// Whether a virtual device should go on at another worker.
//
// What it does in the time to come is what it did last, over and over:
//
//   stay = horizon
//   go   = horizon × (queue there + compute there) ÷ (queue here + compute
//   here)
//          + state ÷ link + setup
//
// where the link is the one from here to there as it was measured, or else as
// it was configured.
//
// It goes if that is sooner by a margin, so that what is uncertain moves
// nothing to and fro; and, whatever it costs, from where it should not be.
// Prefill and decode on different workers are a case of it: what decides is
// what the new phase takes on either (the rule is llm-d's and Splitwise's, with
// the horizon in the place of the tokens to come).
#ifndef SCHEDULER_PLACEMENT_MIGRATION_H_
#define SCHEDULER_PLACEMENT_MIGRATION_H_

#include <cstdint>

#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

struct MigrationOptions {
  double horizon_seconds = 60;
  // Streams, structures that are defined again.
  double setup_seconds = 0.5;
  double margin = 0.25;
};

struct MigrationTerms {
  // Infinite where it should not be.
  double stay_seconds = 0;
  double go_seconds = 0;
  uint64_t state_bytes = 0;
  double transfer_seconds = 0;
  bool pays = false;
};

// `there.missing_bytes` has to move. `fit`: a filter lets it be where it is.
// Nothing pays while its work is not known.
MigrationTerms WeighMigration(const Terms& here, bool fit, const Terms& there,
                              const MigrationOptions& options = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_MIGRATION_H_
