#include "gpu_worker/session/observe/run_gates.h"

#include <algorithm>

namespace djinn::worker {

void RunGates::Mark::Settled(absl::Duration now) {
  const ServedTime::Reading reading = Read(absl::ToInt64Nanoseconds(now));
  MutexLock lock(&mu_);
  at_ = now;
  reading_ = reading;
  set_.store(true, std::memory_order_release);
}

void RunGates::Look() {
  if (!mark_->set_.load(std::memory_order_acquire)) return;
  absl::Duration at;
  ServedTime::Reading reading;
  {
    MutexLock lock(&mark_->mu_);
    mark_->set_.store(false, std::memory_order_relaxed);
    at = mark_->at_;
    reading = mark_->reading_;
  }
  switch (gate_) {
    case v1::RUN_GATE_BYTES:
    case v1::RUN_GATE_CONTENT:
    case v1::RUN_GATE_VALUE:
    case v1::RUN_GATE_GRAPH:
    case v1::RUN_GATE_REPLIES:
      EnterWith(v1::RUN_GATE_WORKER, absl::ToInt64Nanoseconds(at), reading);
      break;
    default:
      // The session learned of the event already.
      break;
  }
}

void RunGates::AddPassed(int64_t now, const ServedTime::Reading& reading) {
  if (gate_ == v1::RUN_GATE_UNSPECIFIED) return;
  int64_t left = std::max<int64_t>(now - since_, 0);
  if (gate_ == v1::RUN_GATE_WORKER) {
    const auto part = [&](v1::RunGate gate, int64_t from, int64_t to) {
      const int64_t passed = std::clamp<int64_t>(to - from, 0, left);
      times_[gate] += passed;
      left -= passed;
    };
    part(v1::RUN_GATE_TENANT, reading_.own, reading.own);
    part(v1::RUN_GATE_OTHER_TENANTS, reading_.others, reading.others);
    part(v1::RUN_GATE_BATCH, reading_.batch, reading.batch);
  }
  times_[gate_] += left;
}

void RunGates::EnterWith(v1::RunGate gate, int64_t now,
                         const ServedTime::Reading& reading) {
  AddPassed(now, reading);
  since_ = std::max(since_, now);
  reading_ = reading;
  if (gate == gate_) return;
  gate_ = gate;
  entered_ = since_;
}

const RunGates::Times& RunGates::Enter(v1::RunGate gate, absl::Duration now) {
  Look();
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(now);
  // Only waits for a turn are divided, and need a reading.
  const bool turns =
      gate == v1::RUN_GATE_WORKER || gate_ == v1::RUN_GATE_WORKER;
  EnterWith(gate, nanoseconds,
            turns ? mark_->Read(nanoseconds) : ServedTime::Reading());
  return times_;
}

const RunGates::Times& RunGates::At(absl::Duration now) {
  // An event outside the session may have changed gate_.
  Look();
  return Enter(gate_, now);
}

v1::RunGate RunGates::Now() {
  Look();
  if (gate_ != v1::RUN_GATE_WORKER || mark_->served_ == nullptr) return gate_;
  switch (mark_->served_->ServesFor(mark_->tenant_.get())) {
    case ServedTime::Whom::kOwn:
      return v1::RUN_GATE_TENANT;
    case ServedTime::Whom::kOthers:
      return v1::RUN_GATE_OTHER_TENANTS;
    case ServedTime::Whom::kBatch:
      return v1::RUN_GATE_BATCH;
    case ServedTime::Whom::kNobody:
      break;
  }
  return gate_;
}

}  // namespace djinn::worker
