#include "gpu_worker/supervisor/metrics/executor_families.h"

#include <utility>

#include "absl/time/time.h"
#include "common/metrics/count_histogram.h"
#include "common/metrics/duration_histogram.h"

namespace djinn::worker {
namespace {

using Entry = std::pair<const std::string, ExecutorFamily>;

Entry Counter(const char* name, const char* help) {
  return {name, {help, v1::MetricFamily::COUNTER, {}}};
}

Entry Gauge(const char* name, const char* help) {
  return {name, {help, v1::MetricFamily::GAUGE, {}}};
}

Entry Durations(const char* name, const char* help, absl::Duration first) {
  const DurationHistogram histogram(first);
  std::vector<double> bounds;
  for (size_t i = 0; i < DurationHistogram::kBounds; ++i) {
    bounds.push_back(absl::ToDoubleSeconds(histogram.bound(i)));
  }
  return {name, {help, v1::MetricFamily::HISTOGRAM, std::move(bounds)}};
}

Entry Counts(const char* name, const char* help) {
  std::vector<double> bounds;
  for (size_t i = 0; i < CountHistogram::kBounds; ++i) {
    bounds.push_back(static_cast<double>(CountHistogram::Bound(i)));
  }
  return {name, {help, v1::MetricFamily::HISTOGRAM, std::move(bounds)}};
}

// Sizes of calls, as common/net/call_metrics.h counts them.
Entry Sizes(const char* name, const char* help) {
  return {
      name,
      {help,
       v1::MetricFamily::HISTOGRAM,
       {0, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
        4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4.0 * (1 << 30)}}};
}

}  // namespace

const std::map<std::string, ExecutorFamily>& ExecutorFamilies() {
  static const auto* const kFamilies = new std::map<std::string,
                                                    ExecutorFamily>{
      Counts("djinn_batch_rows",
             "Rows that one multiplication of a batch had."),
      Counts("djinn_batch_runs",
             "Runs that one batch multiplied by a weight together."),
      Counts("djinn_batch_tenants", "Tenants whose runs one batch had."),
      Durations("djinn_batch_wait_seconds",
                "Time that a turn waited in a batching window.",
                absl::Microseconds(250)),
      Gauge("djinn_cache_bytes", "Bytes in a cache; an estimate for plans."),
      Counter("djinn_cache_evictions_total",
              "Entries that a cache evicted to make room."),
      Counter("djinn_cache_requests_total", "Look-ups in a cache."),
      Counter("djinn_content_challenges_total",
              "Proofs of having another tenant's bytes, asked for."),
      Durations("djinn_inter_result_seconds",
                "Time between successive reads of a generating program.",
                absl::Milliseconds(5)),
      Gauge("djinn_oldest_pending_age_seconds",
            "Age of the tenant's oldest pending work."),
      Gauge("djinn_pending_runs", "Runs received and not completed."),
      Durations("djinn_preemption_duration_seconds",
                "Time that a preempted turn was suspended.",
                absl::Milliseconds(1)),
      Counter("djinn_preemptions_total",
              "Turns that yielded between two nodes."),
      Durations("djinn_queue_wait_seconds",
                "Time that a session with work waited for its turn.",
                absl::Milliseconds(5)),
      Counter(
          "djinn_recomputed_nodes_total",
          "Operator calls that rematerialized what another worker had made."),
      Counter("djinn_recoveries_total",
              "Losses and recoveries of peers, leases, sessions and virtual "
              "devices, by kind and result."),
      Durations(
          "djinn_recovery_duration_seconds",
          "Time from the loss of a peer until it was back, or a stage of it.",
          absl::Milliseconds(5)),
      Counter("djinn_rejections_total", "Requests refused, by error reason."),
      Durations("djinn_request_duration_seconds",
                "Time between a run's arrival and its end.",
                absl::Milliseconds(5)),
      Counter("djinn_requests_total", "Runs that are over, by how they ended."),
      Counter("djinn_run_deadlines_total", "Runs with a deadline, by result."),
      Durations(
          "djinn_start_prediction_error_seconds",
          "Difference between the predicted and the actual start of a run.",
          absl::Milliseconds(5)),
      Durations("djinn_state_idle_before_evict_seconds",
                "Time between the last use of a content and its eviction.",
                absl::Seconds(1)),
      Durations(
          "djinn_time_to_first_result_seconds",
          "Time between a prompt's arrival and the first value read after it.",
          absl::Milliseconds(5)),
      Counter("djinn_transfer_bytes_total", "Bytes that moved."),
      Counter("djinn_worker_alias_copies_total",
              "Results copied because they shared an operand's memory."),
      Gauge("djinn_worker_connections", "Streams of clients."),
      Gauge("djinn_worker_device_available_bytes",
            "Memory that the worker could still get from the device, which "
            "other processes may use, too."),
      Counter("djinn_worker_device_busy_seconds_total",
              "Time in which the device served sessions."),
      Counter("djinn_worker_device_events_total",
              "Events that the device counts."),
      Gauge("djinn_worker_device_memory_bytes",
            "The device's memory by what it is used for."),
      Counter("djinn_worker_executor_seconds_total",
              "Time that the executor thread was not waiting."),
      Counter(
          "djinn_worker_housekeeping_seconds_total",
          "Time that the executor thread spent outside of sessions' turns."),
      Gauge("djinn_worker_kv_bytes", "Bytes in caches of keys and values."),
      Gauge("djinn_worker_kv_sessions",
            "Sessions that hold caches of keys and values."),
      Gauge("djinn_worker_memory_pressure",
            "Memory use of the device: 1 from 80 % on, 2 from 95 %, otherwise "
            "0."),
      Gauge("djinn_worker_model_bytes",
            "Bytes that registered models had at their registration."),
      Gauge("djinn_worker_models", "Models that are registered."),
      Counter("djinn_worker_nodes_total", "Operator calls, by outcome."),
      Gauge("djinn_worker_offers", "Values that wait for another worker."),
      Counter("djinn_worker_proof_seconds_total",
              "Time spent hashing contents to check proofs of possession."),
      Gauge("djinn_worker_refused_models",
            "Registrations of the sessions here that their tenants' budgets "
            "refused."),
      Counter("djinn_worker_retried_nodes_total",
              "Operator calls repeated because they had lacked memory."),
      Counter("djinn_worker_runs_total", "Runs that the worker executed."),
      Gauge("djinn_worker_sessions", "Sessions with state here."),
      Durations("djinn_worker_step_seconds",
                "Duration of one turn of a session on the device.",
                absl::Milliseconds(1)),
      Gauge("djinn_worker_tenant_memory_bytes",
            "The device's memory that is used for a tenant."),
      Counter("djinn_worker_unbilled_leases_total",
              "Ended leases whose use was forgotten before the coordinator had "
              "it billed: too many waited."),
      Counter("djinn_worker_write_copies_total",
              "Shared buffers copied because they were to be written."),
      Durations("grpc_server_call_duration_seconds",
                "Calls and streams, from start to status.",
                absl::Milliseconds(5)),
      Sizes("grpc_server_call_rcvd_total_compressed_message_size_bytes",
            "Bytes of the messages that a call received. Calls that carry "
            "tensors are not counted."),
      Sizes("grpc_server_call_sent_total_compressed_message_size_bytes",
            "Bytes of the messages that a call sent. Calls that carry tensors "
            "are not counted."),
      Counter("grpc_server_call_started_total", "Calls that began.")};
  return *kFamilies;
}

}  // namespace djinn::worker
