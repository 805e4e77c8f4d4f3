#include "coordinator/tables/cluster_metrics.h"

#include "common/base/error.h"

namespace djinn::coordinator {

ClusterMetrics::ClusterMetrics() {
  for (const char* const kind :
       {"device_rebound", "local_fallback", "fallback_ended"}) {
    recoveries.Add({kind, "failed"}, 0);
  }
}

void ClusterMetrics::CountRejection(const std::string& tenant,
                                    const absl::Status& why) {
  const std::string reason = ErrorReason(why);
  rejections.Add({tenants.For(tenant), reason.empty() ? "UNKNOWN" : reason});
}

void ClusterMetrics::Collect(Exposition* out) {
  attempts.Collect(out);
  rejections.Collect(out);
  // An alert compares this series with its past, so it begins with 0.
  recoveries.Add({"device_rebound", "failed"}, 0);
  recoveries.Collect(out);
  const auto took = [&](const char* kind, const char* stage,
                        const DurationHistogram& durations) {
    out->Histogram("djinn_recovery_duration_seconds",
                   "Time from the loss of a peer until it was back, or a stage "
                   "of it.",
                   durations, {{"kind", kind}, {"stage", stage}});
  };
  took("session_attached_again", "total", attached_again);
  took("worker_restarted", "total", worker_restarts);
  took("device_rebound", "total", rebound.total);
  took("device_rebound", "lease", rebound.lease);
  took("device_rebound", "connect", rebound.connect);
  took("device_rebound", "send", rebound.send);
  took("device_rebound", "replay", rebound.replay);
  replayed_nodes.Collect(out);
  checkpoints.Collect(out);
  checkpoint_bytes.Collect(out);
  out->Histogram("djinn_checkpoint_duration_seconds",
                 "Time that a checkpoint of a virtual device took.",
                 checkpoint_durations);
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
