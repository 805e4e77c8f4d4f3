#include "scheduler/placement/migration.h"

#include <limits>

namespace djinn::scheduler {
namespace {

double PassSeconds(const Terms& terms) {
  return terms.queue_seconds + terms.compute_seconds;
}

}  // namespace

MigrationTerms WeighMigration(const Terms& here, bool fit, const Terms& there,
                              const MigrationOptions& options) {
  MigrationTerms terms;
  terms.state_bytes = there.missing_bytes;
  terms.transfer_seconds = there.transfer_seconds;
  const bool known = here.compute_seconds > 0 && there.compute_seconds > 0;
  const double slowdown = known ? PassSeconds(there) / PassSeconds(here) : 1.0;
  terms.stay_seconds =
      fit ? options.horizon_seconds : std::numeric_limits<double>::infinity();
  terms.go_seconds = options.horizon_seconds * slowdown +
                     terms.transfer_seconds + options.setup_seconds;
  terms.pays = !fit || (known && terms.go_seconds <
                                     (1 - options.margin) * terms.stay_seconds);
  return terms;
}

}  // namespace djinn::scheduler
