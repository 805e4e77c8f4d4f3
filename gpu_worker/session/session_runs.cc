// What holds a session's messages, and what became of its runs.
#include <algorithm>
#include <utility>

#include "gpu_worker/session/session.h"

namespace djinn::worker {

std::function<void()> Session::SettledCallback() {
  std::shared_ptr<RunGates::Mark> mark;
  {
    MutexLock lock(&mu_);
    mark = gates_.mark();
  }
  // Others may call it when the session is gone.
  return [mark = std::move(mark), clock = environment_.clock,
          runnable = callbacks_.runnable] {
    mark->Settled(clock->Monotonic());
    runnable();
  };
}

v1::RunGate Session::GateLocked(bool full) const {
  if (OverLocked()) return v1::RUN_GATE_UNSPECIFIED;
  if (upload_.has_value()) {
    const std::optional<Uploads::Awaited> awaited = uploads_.awaited();
    if (awaited.has_value()) {
      return awaited->from_disk ? v1::RUN_GATE_CONTENT : v1::RUN_GATE_BYTES;
    }
  }
  if (fetch_.has_value() && !pulls_.settled()) return v1::RUN_GATE_VALUE;
  if (need_.has_value() && !need_->supply.has_value()) {
    return v1::RUN_GATE_STRUCTURE;
  }
  if (full) return v1::RUN_GATE_REPLIES;
  if (!HasWorkLocked()) return v1::RUN_GATE_UNSPECIFIED;
  if (!inbox_.empty() && inbox_.next_sequence() == no_room_for_) {
    return v1::RUN_GATE_ROOM;
  }
  return v1::RUN_GATE_WORKER;
}

bool Session::EndTurn(absl::Duration now) {
  const bool full = outbox_.Full();
  MutexLock lock(&mu_);
  gates_.Enter(GateLocked(full), now);
  return !full && HasWorkLocked();
}

void Session::NoteOutOfCredit(absl::Duration now) {
  MutexLock lock(&mu_);
  if (HasWorkLocked()) gates_.Enter(v1::RUN_GATE_CREDIT, now);
}

void Session::NoteCredit(absl::Duration now) {
  MutexLock lock(&mu_);
  if (gates_.gate() == v1::RUN_GATE_CREDIT) {
    gates_.Enter(v1::RUN_GATE_WORKER, now);
  }
}

RunRecords::Waiting Session::WaitingOf(const Inbox::Item& item) {
  return {&item.message, item.arrived, item.deadline};
}

void Session::NoteRunBegins(const Inbox::Item& item, v1::Phase phase,
                            absl::Duration now) {
  runs_.Begin(WaitingOf(item), phase, gates_.Enter(v1::RUN_GATE_SESSION, now),
              now);
}

void Session::NoteBegun(absl::Duration now) {
  MutexLock lock(&mu_);
  NoteRunBegins(begun_->item, phase(), now);
}

void Session::NoteBatch(
    uint64_t products, absl::Span<const std::shared_ptr<const RunPeer>> with) {
  MutexLock lock(&mu_);
  runs_.Share(products, with);
}

void Session::NoteYield(const RunPeer& first, absl::string_view reason,
                        absl::Duration away) {
  MutexLock lock(&mu_);
  runs_.GiveWay(first, reason, away);
}

void Session::NoteRunEnds(RunRecords::End end, absl::Duration now) {
  end.phase = phase();
  end.planned = structures_.TakePlanningTime();
  if (cancelled_) {
    end.state = v1::RunRecord::CANCELLED;
  } else if (end.failure != nullptr && end.state == v1::RunRecord::COMPLETED) {
    end.state = v1::RunRecord::FAILED;
  }
  MutexLock lock(&mu_);
  runs_.Finish(end, now);
}

void Session::AbandonRuns(absl::Duration now) {
  std::vector<RunRecords::Waiting> waiting;
  inbox_.ForEachRun(
      [&](const Inbox::Item& item) { waiting.push_back(WaitingOf(item)); });
  runs_.Abandon(waiting, gates_.At(now), now);
}

void Session::DescribeRuns(v1::LeaseRuns* runs) {
  const absl::Duration now = environment_.clock->Monotonic();
  MutexLock lock(&mu_);
  std::vector<RunRecords::Waiting> waiting;
  inbox_.ForEachRun(
      [&](const Inbox::Item& item) { waiting.push_back(WaitingOf(item)); });
  RunRecords::Moment moment;
  moment.now = now;
  moment.waited = gates_.At(now);
  moment.gate = gates_.Now();
  moment.since = gates_.since();
  moment.completed = inbox_.completed();
  runs_.Describe(waiting, moment, runs->mutable_runs());
  runs->set_more_waiting(static_cast<uint32_t>(
      waiting.size() - std::min(waiting.size(), RunRecords::kWaiting)));
}

}  // namespace djinn::worker
