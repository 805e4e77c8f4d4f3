// Counts what becomes of sessions' runs, for operators, and notes it for one
// session.
#ifndef GPU_WORKER_SESSION_OBSERVE_SESSION_METRICS_H_
#define GPU_WORKER_SESSION_OBSERVE_SESSION_METRICS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/lease/phase_times.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "common/metrics/tenant_labels.h"
#include "gpu_worker/session/observe/request_counts.h"
#include "gpu_worker/session/observe/result_times.h"

namespace djinn::worker {

// Of all sessions of a worker. Thread-safe.
struct SessionMetrics {
  void Collect(Exposition* out) const;

  TenantLabels tenants;
  // From a run's arrival to its end.
  DurationHistogram request_duration;
  RequestCounts requests;
  // Of programs that generate: from a prompt's arrival to the first value read
  // behind it, and from each value to the next one.
  DurationHistogram first_result;
  DurationHistogram next_result;
  // Nanoseconds in which contents were hashed to check proofs.
  std::atomic<uint64_t> proofs{0};
  LabelledCounter rejections{"djinn_rejections_total",
                             "Requests refused, by error reason.",
                             {"tenant", "reason"}};
  LabelledCounter deadlines{"djinn_run_deadlines_total",
                            "Runs with a deadline, by how they came out.",
                            {"tenant", "priority_class", "result"}};
};

// How a run with a deadline ended.
enum class RunInTime {
  // Done by then.
  kAttained,
  // Not done by then, or its turn came later than that.
  kMissed,
  // It would have been late, and was not begun.
  kRefused,
};

// Thread-safe.
class SessionCounts {
 public:
  // `metrics` outlives it.
  SessionCounts(SessionMetrics* metrics, const std::string& tenant)
      : metrics_(*metrics),
        label_(metrics->tenants.For(tenant)),
        succeeded_(*metrics->requests.SucceededOf(label_)) {}

  // A run is over that took so long since it arrived, one that was not begun
  // included.
  void RunOver(v1::Phase phase, absl::StatusCode code, absl::Duration took);
  // A run with a deadline is over, of this PriorityClass.
  void InTime(int priority, RunInTime result);
  // A program that generates reads a result.
  void Result(const ResultTimes::Result& result);
  // A budget refused something.
  void Refused(const absl::Status& why);
  // A proof was checked for so long.
  void Proof(absl::Duration used);

 private:
  SessionMetrics& metrics_;
  const std::string label_;
  RequestCounts::Succeeded& succeeded_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_SESSION_METRICS_H_
