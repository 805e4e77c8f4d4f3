// What a worker counts for its operators, besides the numbers that its parts
// have anyway. The executor and the streams only add to atomics.
#ifndef GPU_WORKER_CORE_WORKER_METRICS_H_
#define GPU_WORKER_CORE_WORKER_METRICS_H_

#include <atomic>
#include <cstdint>

#include "common/metrics/count_histogram.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/labelled_counter.h"
#include "common/metrics/tenant_labels.h"
#include "gpu_worker/leases/phase_counters.h"
#include "gpu_worker/session/request_counts.h"
#include "gpu_worker/leases/traffic.h"

namespace djinn::worker {

// Thread-safe.
struct WorkerMetrics {
  TenantLabels tenants;
  // From having work to being carried out.
  DurationHistogram queue_wait;
  // From a run's arrival to its end.
  DurationHistogram request_duration;
  RequestCounts requests;
  // Of programs that generate: from a prompt's arrival to the first value read
  // behind it, and from each value to the next one.
  DurationHistogram first_result;
  DurationHistogram next_result;
  // Between when a turn was expected to begin, where that was known, and when
  // it did.
  DurationHistogram start_prediction_error;
  // What one turn on the device took.
  DurationHistogram steps{absl::Milliseconds(1)};
  // Of each product that runs shared.
  CountHistogram batch_runs;
  CountHistogram batch_rows;
  CountHistogram batch_tenants;
  // Of turns for others to share them.
  DurationHistogram batch_waits{absl::Microseconds(250)};
  // Of the executor, to another processor.
  DurationHistogram processor_moves{absl::Microseconds(250)};
  // In which the device served sessions.
  PhaseCounters busy;
  // In which the executor was at work for nobody who is billed, and in which
  // others worked for somebody who is. In nanoseconds.
  std::atomic<uint64_t> housekeeping{0};
  std::atomic<uint64_t> proofs{0};
  // Of all sessions.
  Traffic traffic;
  LabelledCounter rejections{"djinn_rejections_total",
                             "Requests refused, by error reason.",
                             {"tenant", "reason"}};
  LabelledCounter deadlines{"djinn_run_deadlines_total",
                            "Runs with a deadline, by how they came out.",
                            {"tenant", "priority_class", "result"}};
  LabelledCounter recoveries{"djinn_recoveries_total",
                             "Peers lost, and what was taken up again.",
                             {"kind"}};
  // From a stream's breaking until another one took up its session.
  DurationHistogram resumed_streams;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_WORKER_METRICS_H_
