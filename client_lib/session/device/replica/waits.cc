// Makes the program's threads wait for the connection.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/wait.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::replica {
namespace {

// Waits for what a message of the worker changes under the connection's lock,
// or for the device's failure.
void WaitOrReceive(State& r, CondVar* changed, absl::FunctionRef<bool()> done,
                   const Deadline& deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  bool may_lead = false;
  {
    MutexLock lock(&r.answers.mu);
    may_lead = r.answers.may_lead();
  }
  r.receiver.WaitOrReceive(
      &c.mu, changed,
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
        return done() || !c.end.failure.ok();
      },
      deadline, may_lead);
}

// Ends a wait after the operation timeout, which restarts while a recovery
// makes progress.
class ReplayDeadline {
 public:
  explicit ReplayDeadline(const State& r)
      : r_(r), deadline_(Next()), replayed_(r.answers.replay_moves) {}

  bool passed() {
    if (!deadline_.passed()) return false;
    const uint64_t before = std::exchange(replayed_, r_.answers.replay_moves);
    if (replayed_ == before) return true;
    deadline_ = Next();
    return false;
  }
  const Deadline& deadline() const { return deadline_; }

 private:
  Deadline Next() const {
    const SessionOptions& options = r_.context->options;
    return Deadline(options.operation_timeout, options.clock);
  }

  const State& r_;
  Deadline deadline_;
  uint64_t replayed_;
};

// Waits until it is decided which worker gets the work that is recorded now.
absl::Status AwaitMigration(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  const Deadline deadline(r.context->options.operation_timeout,
                          r.context->options.clock);
  while (c.migration.current != nullptr) {
    if (!c.end.usable()) return TellEnd(r);
    if (deadline.passed()) return r.answers.NoAnswer();
    WaitUntil(&c.connection_changed, &c.mu, deadline);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TellEnd(State& r) {
  r.answers.failure_told = true;
  return r.connection.end.Reason();
}

bool FailureIsKnown(const State& r) {
  if (ABSL_PREDICT_TRUE(!r.recorder.refused() && !r.answers.failure_told)) {
    return false;
  }
  MutexLock lock(&r.connection.mu);
  return !r.connection.end.failing.ok();
}

absl::Status AwaitWindow(State& r) {
  ConnectionState& c = r.connection;
  ReplayDeadline deadline(r);
  r.queue.NeedLease();
  r.sender.wakeup.Set();
  MutexLock lock(&c.mu);
  // Another thread may fill the queue at any time, so that only a deadline that
  // has passed says that it was full until now.
  while (c.end.usable() && r.queue.full()) {
    if (deadline.passed()) {
      const WorkQueue::Size queued = r.queue.size();
      return MakeError(
          absl::StatusCode::kDeadlineExceeded, "WINDOW_FULL",
          absl::StrCat(
              "no room in the window for ",
              absl::FormatDuration(r.context->options.operation_timeout), ": ",
              queued.works + c.log.outstanding(), " messages (",
              queued.bytes + c.log.outstanding_bytes(),
              " bytes) are unfinished; the worker allows ",
              c.log.window_messages(), " (", c.log.window_bytes(),
              ") in all so far"));
    }
    WaitOrReceive(
        r, &c.window_changed,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
          return !c.end.usable() || !r.queue.full();
        },
        deadline.deadline());
  }
  return absl::OkStatus();
}

absl::Status AwaitWelcome(State& r) {
  ConnectionState& c = r.connection;
  r.queue.NeedLease();
  if (!c.welcomed) r.sender.wakeup.Set();
  const Deadline deadline(r.context->options.connect_timeout * 2,
                          r.context->options.clock);
  while (!c.welcomed || c.recovery.due) {
    if (!c.end.usable()) return TellEnd(r);
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       "no worker was reached");
    }
    WaitUntil(&c.connection_changed, &c.mu, deadline);
  }
  return absl::OkStatus();
}

absl::Status QueueHere(
    State& r, absl::FunctionRef<absl::Status(CallRecorder::Admit)> queue,
    absl::FunctionRef<void()> fill) {
  ConnectionState& c = r.connection;
  for (;;) {
    {
      MutexLock lock(&c.mu);
      DJINN_RETURN_IF_ERROR(AwaitWelcome(r));
      DJINN_RETURN_IF_ERROR(AwaitMigration(r));
    }
    bool queued = false;
    DJINN_RETURN_IF_ERROR(queue([&](absl::FunctionRef<void()> push) {
      MutexLock lock(&c.mu);
      // The work is meant for this worker.
      if (c.migration.current != nullptr || c.recovery.due) return;
      fill();
      push();
      queued = true;
    }));
    if (queued) return absl::OkStatus();
  }
}

absl::Status CatchUp(State& r) {
  ConnectionState& c = r.connection;
  {
    MutexLock lock(&c.mu);
    if (!c.end.usable()) return TellEnd(r);
  }
  r.recorder.SealAll();
  if (!r.queue.empty()) r.queue.NeedLease();
  const uint64_t target = r.queue.pushed();
  SendNow(r);
  {
    MutexLock lock(&c.mu);
    ReplayDeadline deadline(r);
    while (c.works_done < target) {
      if (!c.end.failure.ok()) return TellEnd(r);
      if (deadline.passed()) {
        return MakeError(absl::StatusCode::kDeadlineExceeded,
                         "OPERATION_TIMEOUT", "the worker has not caught up");
      }
      WaitOrReceive(
          r, &c.progress_changed,
          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
            return c.works_done >= target;
          },
          deadline.deadline());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DevicePlacement> Placement(State& r) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  if (!c.end.usable()) return TellEnd(r);
  DJINN_RETURN_IF_ERROR(AwaitWelcome(r));
  DevicePlacement placement = c.placement;
  placement.memory_bytes = c.limits.memory_bytes();
  placement.generator_bytes = c.facts.generator_bytes;
  return placement;
}

}  // namespace djinn::replica
