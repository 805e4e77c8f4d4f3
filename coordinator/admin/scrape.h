// Adds the cluster's metrics to scrapes.
#ifndef COORDINATOR_ADMIN_SCRAPE_H_
#define COORDINATOR_ADMIN_SCRAPE_H_

#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "coordinator/tables/cluster_state.h"

namespace djinn::coordinator::scrape {

// Adds the state of the cluster and its counters to a scrape.
void Collect(ClusterState& state, Exposition* out)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::scrape

#endif  // COORDINATOR_ADMIN_SCRAPE_H_
