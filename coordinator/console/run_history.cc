#include "coordinator/console/run_history.h"

#include "common/base/proto_duration.h"

namespace djinn::console {

void RunHistory::Add(const v1::RunInfo& run, absl::Time now) {
  const v1::RunRecord& record = run.record();
  SeenRun seen;
  const Key key(run.lease_id(), record.number());
  const auto known = change_of_.find(key);
  if (known != change_of_.end()) {
    const auto old = by_change_.find(known->second);
    const v1::RunRecord::State state = old->second.state;
    // An ended run does not change any more, and later answers would only move
    // it by the difference of their ways.
    if (state != v1::RunRecord::WAITING && state != v1::RunRecord::IN_SERVICE) {
      return;
    }
    seen.id = old->second.id;
    by_change_.erase(old);
    change_of_.erase(known);
  } else {
    seen.id = ++last_id_;
  }
  seen.worker = run.worker_id();
  seen.tenant = run.tenant();
  seen.session = run.session_id();
  seen.lease = run.lease_id();
  seen.virtual_device = run.virtual_device();
  seen.member = run.member();
  seen.number = record.number();
  seen.fingerprint = record.fingerprint();
  seen.phase = record.phase();
  seen.state = record.state();
  seen.gate = record.gate();
  seen.received = now - FromProtoDuration(record.age());
  seen.waited = FromProtoDuration(record.waited());
  seen.served = record.has_served() ? FromProtoDuration(record.served())
                                    : -absl::Nanoseconds(1);
  seen.device_time = FromProtoDuration(record.device_time());
  seen.yields = record.yield_count();
  seen.yielded_for = FromProtoDuration(record.yielded_for());
  if (record.preemptions_size() > 0) {
    const v1::RunPreemption& last =
        record.preemptions(record.preemptions_size() - 1);
    seen.preempted_by = last.tenant();
    seen.reason = last.reason();
  }
  if (record.has_failure()) seen.reason = record.failure().reason();
  change_of_[key] = ++last_change_;
  by_change_.emplace(last_change_, std::move(seen));
  while (by_change_.size() > capacity_) {
    const SeenRun& oldest = by_change_.begin()->second;
    change_of_.erase(Key(oldest.lease, oldest.number));
    by_change_.erase(by_change_.begin());
  }
}

RunHistory::Measured RunHistory::MeasuredOf(
    const std::string& fingerprint) const {
  Measured measured;
  for (const auto& [change, run] : by_change_) {
    if (run.fingerprint != fingerprint ||
        run.state != v1::RunRecord::COMPLETED) {
      continue;
    }
    ++measured.runs;
    measured.served += run.served;
    measured.device_time += run.device_time;
  }
  return measured;
}

}  // namespace djinn::console
