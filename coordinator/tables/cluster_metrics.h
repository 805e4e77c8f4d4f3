// Counters for operators, besides the state that the cluster keeps anyway.
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
  // Shows the failures that an alert watches from the start: Prometheus sees no
  // increase where a series begins.
  ClusterMetrics();

  // Counts a refusal. `tenant` is empty when the tenant is not known.
  void CountRejection(const std::string& tenant, const absl::Status& why);
  // Adds all counters to a scrape.
  void Collect(Exposition* out);

  TenantLabels tenants;
  DurationHistogram decisions{absl::Microseconds(10)};
  LabelledCounter attempts{"djinn_scheduling_attempts_total",
                           "Attempts to place a virtual device, by result.",
                           {"result"}};
  LabelledCounter rejections{"djinn_rejections_total",
                             "Requests refused, by error reason.",
                             {"tenant", "reason"}};
  LabelledCounter preemptions{
      "djinn_preemptions_total",
      "Leases that ended because their quota was taken back.",
      {"preemptor_tenant", "victim_tenant", "reason"}};
  LabelledCounter migrations{"djinn_migrations_total",
                             "Virtual device migrations, by reason and result.",
                             {"reason", "result"}};
  LabelledCounter returned_leases{
      "djinn_returned_leases_total", "Leases that clients returned.", {"why"}};
  DurationHistogram migration_pauses{absl::Milliseconds(1)};
  LabelledCounter recoveries{
      "djinn_recoveries_total",
      "Losses and recoveries of peers, leases, sessions and virtual devices, "
      "by kind and result.",
      {"kind", "result"}};
  // Time from when a peer was last seen until it was back: sessions' clients,
  // and workers that restarted.
  DurationHistogram attached_again;
  DurationHistogram worker_restarts;
  // Time between a client's notice of a lost worker and the end of the replay
  // on another one, in total and by stage, as clients report it.
  struct {
    DurationHistogram total, lease, connect, send, replay;
  } rebound;
  LabelledCounter replayed_nodes{
      "djinn_replayed_nodes_total",
      "Messages that clients sent again after they lost a worker.",
      {"tenant"}};
  LabelledCounter checkpoints{"djinn_checkpoints_total",
                              "Checkpoints of virtual devices, by result.",
                              {"tenant", "result"}};
  LabelledCounter checkpoint_bytes{
      "djinn_checkpoint_bytes_total",
      "Bytes of values that checkpoints read back.",
      {"tenant"}};
  DurationHistogram checkpoint_durations;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_METRICS_H_
