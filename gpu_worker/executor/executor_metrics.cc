#include "gpu_worker/executor/executor_metrics.h"

#include "absl/time/time.h"
#include "common/lease/phase_times.h"

namespace djinn::worker {

void ExecutorMetrics::Collect(Exposition* out) const {
  out->Histogram(
      "djinn_start_prediction_error_seconds",
      "Difference between the predicted and the actual start of a run.",
      start_prediction_error);
  out->Histogram("djinn_queue_wait_seconds",
                 "Time that a session with work waited for its turn.",
                 queue_wait);
  out->Histogram("djinn_worker_step_seconds",
                 "Duration of one turn of a session on the device.", steps);
  out->Histogram("djinn_batch_runs",
                 "Runs that one batch multiplied by a weight together.",
                 batch_runs);
  out->Histogram("djinn_batch_rows",
                 "Rows that one multiplication of a batch had.", batch_rows);
  out->Histogram("djinn_batch_tenants", "Tenants whose runs one batch had.",
                 batch_tenants);
  out->Histogram("djinn_batch_wait_seconds",
                 "Time that a turn waited in a batching window.", batch_waits);
  const PhaseTimes times = busy.Read();
  for (int i = 0; i < PhaseTimes::kPhases; ++i) {
    const auto phase = static_cast<v1::Phase>(i);
    const absl::Duration time = times.of(phase);
    if (time == absl::ZeroDuration() && phase != v1::PHASE_UNSPECIFIED) {
      continue;
    }
    out->Counter("djinn_worker_device_busy_seconds_total",
                 "Time in which the device served sessions.",
                 absl::ToDoubleSeconds(time), {{"phase", PhaseName(phase)}});
  }
  out->Counter(
      "djinn_worker_housekeeping_seconds_total",
      "Time that the executor thread spent outside of sessions' turns.",
      static_cast<double>(housekeeping.load(std::memory_order_relaxed)) * 1e-9);
}

}  // namespace djinn::worker
