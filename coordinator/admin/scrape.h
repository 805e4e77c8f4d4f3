// Describes the cluster's state to operators' monitoring.
#ifndef COORDINATOR_ADMIN_SCRAPE_H_
#define COORDINATOR_ADMIN_SCRAPE_H_

#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "coordinator/tables/cluster_state.h"

namespace djinn::coordinator::scrape {

// Adds to a scrape what the cluster knows and has counted.
void Collect(ClusterState& state, Exposition* out)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::scrape

#endif  // COORDINATOR_ADMIN_SCRAPE_H_
