#include "gpu_worker/session/observe/run_log.h"

#include <algorithm>

namespace djinn::worker {

std::shared_ptr<RunGates::Mark> RunLog::mark() const {
  MutexLock lock(&mu_);
  return gates_.mark();
}

void RunLog::Enter(v1::RunGate gate, absl::Duration now) {
  MutexLock lock(&mu_);
  gates_.Enter(gate, now);
}

void RunLog::EnterWithCredit(absl::Duration now) {
  MutexLock lock(&mu_);
  if (gates_.gate() == v1::RUN_GATE_CREDIT) {
    gates_.Enter(v1::RUN_GATE_WORKER, now);
  }
}

void RunLog::Define(uint64_t id, absl::string_view fingerprint) {
  MutexLock lock(&mu_);
  records_.Define(id, fingerprint);
}

void RunLog::Forget(uint64_t id) {
  MutexLock lock(&mu_);
  times_.Forget(id);
  phases_.erase(id);
  records_.Forget(id);
}

void RunLog::SetPhase(uint64_t id, v1::Phase phase) {
  MutexLock lock(&mu_);
  phases_[id] = phase;
}

v1::Phase RunLog::PhaseOf(uint64_t id) const {
  MutexLock lock(&mu_);
  const auto found = phases_.find(id);
  return found == phases_.end() ? v1::PHASE_UNSPECIFIED : found->second;
}

void RunLog::NoteTime(uint64_t id, absl::Duration took, absl::Duration now) {
  MutexLock lock(&mu_);
  times_.Note(id, took, now);
}

absl::Duration RunLog::Expected(uint64_t id, absl::Duration now) const {
  MutexLock lock(&mu_);
  return times_.Expected(id, now);
}

void RunLog::Receive(absl::Duration now) {
  MutexLock lock(&mu_);
  const bool idle = gates_.gate() == v1::RUN_GATE_UNSPECIFIED;
  records_.Receive(idle ? gates_.Enter(v1::RUN_GATE_WORKER, now)
                        : gates_.At(now));
}

void RunLog::Begin(const Waiting& run, v1::Phase phase, absl::Duration now) {
  MutexLock lock(&mu_);
  records_.Begin(run, phase, gates_.Enter(v1::RUN_GATE_SESSION, now), now);
}

void RunLog::PutBack() {
  MutexLock lock(&mu_);
  records_.PutBack();
}

bool RunLog::Finish(const RunRecords::End& end, absl::Duration now,
                    v1::RunRecord* record) {
  MutexLock lock(&mu_);
  return records_.Finish(end, now, record);
}

void RunLog::Abandon(absl::Span<const Waiting> waiting, absl::Duration now) {
  MutexLock lock(&mu_);
  records_.Abandon(waiting, gates_.At(now), now);
}

void RunLog::Yield(const RunPeer& first, absl::string_view reason,
                   absl::Duration away) {
  MutexLock lock(&mu_);
  records_.Yield(first, reason, away);
}

void RunLog::Share(uint64_t products,
                   absl::Span<const std::shared_ptr<const RunPeer>> with) {
  MutexLock lock(&mu_);
  records_.Share(products, with);
}

void RunLog::Describe(absl::Span<const Waiting> waiting, uint64_t completed,
                      absl::Duration now, v1::LeaseRuns* runs) {
  MutexLock lock(&mu_);
  RunRecords::Moment moment;
  moment.now = now;
  moment.waited = gates_.At(now);
  moment.gate = gates_.Now();
  moment.since = gates_.since();
  moment.completed = completed;
  records_.Describe(waiting, moment, runs->mutable_runs());
  runs->set_more_waiting(static_cast<uint32_t>(
      waiting.size() - std::min(waiting.size(), RunRecords::kWaiting)));
}

}  // namespace djinn::worker
