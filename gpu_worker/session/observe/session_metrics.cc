#include "gpu_worker/session/observe/session_metrics.h"

#include "common/base/error.h"
#include "common/lease/priority_class.h"

namespace djinn::worker {

void SessionMetrics::Collect(Exposition* out) const {
  rejections.Collect(out);
  deadlines.Collect(out);
  requests.Collect(out);
  out->Histogram("djinn_request_duration_seconds",
                 "Time between a run's arrival and its end.", request_duration);
  out->Histogram("djinn_time_to_first_result_seconds",
                 "Time between a prompt's arrival and the first value read "
                 "after it. Its graph, or the decoding behind it, must show "
                 "that it is a prompt.",
                 first_result);
  out->Histogram("djinn_inter_result_seconds",
                 "Time between successive reads of a generating program.",
                 next_result);
  out->Counter(
      "djinn_worker_proof_seconds_total",
      "Time spent hashing contents to check proofs of possession.",
      static_cast<double>(proofs.load(std::memory_order_relaxed)) * 1e-9);
}

void SessionCounts::RunOver(v1::Phase phase, absl::StatusCode code,
                            absl::Duration took) {
  metrics_.request_duration.Observe(took);
  if (code == absl::StatusCode::kOk) {
    succeeded_[phase].fetch_add(1, std::memory_order_relaxed);
  } else {
    metrics_.requests.AddFailed(label_, phase, code);
  }
}

void SessionCounts::InTime(int priority, RunInTime result) {
  const char* const name = result == RunInTime::kAttained ? "attained"
                           : result == RunInTime::kMissed ? "missed"
                                                          : "refused";
  metrics_.deadlines.Add(
      {label_, PriorityClassName(static_cast<v1::PriorityClass>(priority)),
       name});
}

void SessionCounts::Result(const ResultTimes::Result& result) {
  (result.first ? metrics_.first_result : metrics_.next_result)
      .Observe(result.took);
}

void SessionCounts::Refused(const absl::Status& why) {
  metrics_.rejections.Add({label_, ErrorReason(why)});
}

void SessionCounts::Proof(absl::Duration used) {
  metrics_.proofs.fetch_add(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(used)),
      std::memory_order_relaxed);
}

}  // namespace djinn::worker
