// Counts turns on the device for operators.
#ifndef GPU_WORKER_EXECUTOR_EXECUTOR_METRICS_H_
#define GPU_WORKER_EXECUTOR_EXECUTOR_METRICS_H_

#include <atomic>
#include <cstdint>

#include "common/metrics/count_histogram.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "gpu_worker/leases/phase_counters.h"

namespace djinn::worker {

// Thread-safe.
struct ExecutorMetrics {
  void Collect(Exposition* out) const;

  // Time from having work to a turn.
  DurationHistogram queue_wait;
  // Difference between when a turn was expected to begin, where that was known,
  // and when it began.
  DurationHistogram start_prediction_error;
  // Duration of a turn.
  DurationHistogram steps{absl::Milliseconds(1)};
  // Runs, rows and tenants of each product that several runs shared.
  CountHistogram batch_runs;
  CountHistogram batch_rows;
  CountHistogram batch_tenants;
  // Time that a turn waited in the batching window.
  DurationHistogram batch_waits{absl::Microseconds(250)};
  // Time in which the device served sessions, by phase.
  PhaseCounters busy;
  // Nanoseconds in which the executor thread worked for no session.
  std::atomic<uint64_t> housekeeping{0};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_EXECUTOR_METRICS_H_
