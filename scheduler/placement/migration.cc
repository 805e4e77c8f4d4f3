#include "scheduler/placement/migration.h"

#include <limits>

namespace djinn::scheduler {
namespace {

constexpr double kHorizonSeconds = 60;
// Time to open streams and to define graphs again.
constexpr double kSetupSeconds = 0.5;
constexpr double kMargin = 0.25;

double PassSeconds(const Terms& terms) {
  return terms.queue_seconds + terms.compute_seconds;
}

}  // namespace

MigrationTerms WeighMigration(const Terms& here, bool fit, const Terms& there) {
  MigrationTerms terms;
  terms.state_bytes = there.missing_bytes;
  terms.transfer_seconds = there.transfer_seconds;
  const bool known = here.compute_seconds > 0 && there.compute_seconds > 0;
  const double slowdown = known ? PassSeconds(there) / PassSeconds(here) : 1.0;
  terms.stay_seconds =
      fit ? kHorizonSeconds : std::numeric_limits<double>::infinity();
  terms.go_seconds =
      kHorizonSeconds * slowdown + terms.transfer_seconds + kSetupSeconds;
  terms.pays =
      !fit || (known && terms.go_seconds < (1 - kMargin) * terms.stay_seconds);
  return terms;
}

}  // namespace djinn::scheduler
