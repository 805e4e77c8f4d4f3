#include "coordinator/tables/cluster_metrics.h"

#include "common/base/error.h"

namespace djinn::coordinator {

void ClusterMetrics::CountRejection(const std::string& tenant,
                                    const absl::Status& why) {
  const std::string reason = ErrorReason(why);
  rejections.Add({tenants.For(tenant), reason.empty() ? "UNKNOWN" : reason});
}

void ClusterMetrics::Collect(Exposition* out) {
  attempts.Collect(out);
  rejections.Collect(out);
  recoveries.Collect(out);
  const auto took = [&](const char* kind, const DurationHistogram& durations) {
    out->Histogram("djinn_recovery_duration_seconds",
                   "Time from the loss of a peer until it was back.", durations,
                   {{"kind", kind}});
  };
  took("session_attached_again", attached_again);
  took("worker_restarted", worker_restarts);
  migrations.Collect(out);
  preemptions.Collect(out);
  returned_leases.Collect(out);
  out->Histogram("djinn_migration_pause_seconds",
                 "Time that a program's calls waited for a migration of its "
                 "virtual device.",
                 migration_pauses);
  out->Histogram("djinn_scheduling_decision_seconds",
                 "Time of a placement decision.", decisions);
}

}  // namespace djinn::coordinator
