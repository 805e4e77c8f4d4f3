#include "gpu_worker/executor/time_account.h"

namespace djinn::worker {

void TimeAccount::BeginWork(absl::Duration now) {
  {
    MutexLock lock(&mu_);
    working_since_ = now;
  }
  preemption_->Settle(preemption_->OwnTimeAt(now));
}

void TimeAccount::EndWork(absl::Duration now) {
  {
    MutexLock lock(&mu_);
    worked_ = WorkedLocked(now);
    working_since_.reset();
  }
  // The next Charge() reports low credit: a session that waits needs none yet.
  ChargeLast(preemption_->Settle(preemption_->OwnTimeAt(now)));
  meter_.reset();
}

bool TimeAccount::Charge(std::shared_ptr<LeaseMeter> meter, v1::Phase phase,
                         absl::Duration used) {
  meter_ = std::move(meter);
  phase_ = phase;
  ChargeLast(used);
  return std::exchange(low_credit_, false);
}

void TimeAccount::KeepHouse() {
  meter_.reset();
  ChargeLast(preemption_->Settle(preemption_->OwnTime()));
}

void TimeAccount::ChargeLast(absl::Duration used) {
  const auto nanoseconds =
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(used));
  if (meter_ == nullptr) {
    metrics_->housekeeping.fetch_add(nanoseconds, std::memory_order_relaxed);
    return;
  }
  metrics_->busy.Add(phase_, nanoseconds);
  low_credit_ |= meter_->Add(phase_, used);
}

absl::Duration TimeAccount::WorkedBy(absl::Duration now) const {
  MutexLock lock(&mu_);
  return WorkedLocked(now);
}

absl::Duration TimeAccount::WorkedLocked(absl::Duration now) const {
  return working_since_.has_value() ? worked_ + (now - *working_since_)
                                    : worked_;
}

}  // namespace djinn::worker
