// Counts for operators how sessions' runs ended.
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

// The metrics of all sessions of a worker. Thread-safe.
struct SessionMetrics {
  void Collect(Exposition* out) const;

  TenantLabels tenants;
  // Time from a run's arrival to its end.
  DurationHistogram request_duration;
  RequestCounts requests;
  // For programs that generate: time from a prompt's arrival to the first value
  // read behind it, and from each value to the next one.
  DurationHistogram first_result;
  DurationHistogram next_result;
  // Nanoseconds of hashing contents to check proofs.
  std::atomic<uint64_t> proofs{0};
  LabelledCounter rejections{"djinn_rejections_total",
                             "Requests refused, by error reason.",
                             {"tenant", "reason"}};
  LabelledCounter deadlines{"djinn_run_deadlines_total",
                            "Runs with a deadline, by result.",
                            {"tenant", "priority_class", "result"}};
};

// The outcome of a run with a deadline.
enum class RunInTime {
  // Completed by its deadline.
  kAttained,
  // Completed after its deadline, or its turn came later than that.
  kMissed,
  // Not begun, because it would have missed its deadline.
  kRefused,
};

// Counts for one session. Thread-safe.
class SessionCounts {
 public:
  // `metrics` must outlive this.
  SessionCounts(SessionMetrics* metrics, const std::string& tenant)
      : metrics_(*metrics),
        label_(metrics->tenants.For(tenant)),
        succeeded_(*metrics->requests.SucceededOf(label_)) {}

  // Counts a run that is over, even one that was not begun. `took` is the time
  // since its arrival.
  void RunOver(v1::Phase phase, absl::StatusCode code, absl::Duration took);
  // Counts a run with a deadline that is over, of this PriorityClass.
  void InTime(int priority, RunInTime result);
  // Counts a result that a program that generates reads.
  void Result(const ResultTimes::Result& result);
  // Counts a refusal by a budget.
  void Refused(const absl::Status& why);
  // Adds the time that a proof's check took.
  void Proof(absl::Duration used);

 private:
  SessionMetrics& metrics_;
  const std::string label_;
  RequestCounts::Succeeded& succeeded_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_SESSION_METRICS_H_
