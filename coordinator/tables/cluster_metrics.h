// What the cluster counts for its operators, besides the state that it has
// anyway.
#ifndef COORDINATOR_TABLES_CLUSTER_METRICS_H_
#define COORDINATOR_TABLES_CLUSTER_METRICS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "common/metrics/tenant_labels.h"

namespace djinn::coordinator {

// Thread-safe.
struct ClusterMetrics {
  // Counts a refusal. `tenant` is empty when nobody knows it.
  void CountRejection(const std::string& tenant, const absl::Status& why);
  // Adds all of it to a scrape.
  void Collect(Exposition* out);

  TenantLabels tenants;
  DurationHistogram decisions{absl::Microseconds(10)};
  LabelledCounter attempts{"djinn_scheduling_attempts_total",
                           "Tries to find a worker for a virtual device.",
                           {"result"}};
  LabelledCounter rejections{"djinn_rejections_total",
                             "Requests refused, by error reason.",
                             {"tenant", "reason"}};
  LabelledCounter preemptions{
      "djinn_preemptions_total",
      "Leases that ended for others to have their quota.",
      {"preemptor_tenant", "victim_tenant", "reason"}};
  LabelledCounter migrations{"djinn_migrations_total",
                             "Ways of virtual devices to other workers.",
                             {"reason", "result"}};
  LabelledCounter returned_leases{
      "djinn_returned_leases_total", "Leases that clients gave back.", {"why"}};
  DurationHistogram migration_pauses{absl::Milliseconds(1)};
  LabelledCounter recoveries{"djinn_recoveries_total",
                             "Peers lost, and what was taken up again.",
                             {"kind"}};
  // From a peer's going away, as far as that was seen, until it was there
  // again: sessions' clients, and workers that restarted.
  DurationHistogram attached_again;
  DurationHistogram worker_restarts;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_METRICS_H_
