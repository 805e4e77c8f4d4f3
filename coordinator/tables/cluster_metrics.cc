#include "coordinator/tables/cluster_metrics.h"

#include "common/error.h"

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
                   "From a peer's going away until it was taken up again.",
                   durations, {{"kind", kind}});
  };
  took("session_attached_again", attached_again);
  took("worker_restarted", worker_restarts);
  migrations.Collect(out);
  preemptions.Collect(out);
  returned_leases.Collect(out);
  out->Histogram("djinn_migration_pause_seconds",
                 "How long a program's calls waited for its virtual device to "
                 "be at another worker.",
                 migration_pauses);
  out->Histogram("djinn_scheduling_decision_seconds",
                 "Time to choose a worker, or to find none.", decisions);
}

}  // namespace djinn::coordinator
