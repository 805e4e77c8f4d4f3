// A session's ordered messages from their arrival to their completion: which
// one is next, what it waits for, and whether anything still matters.
//
// Streams add messages; the executor takes one at a time, and sets it down
// again when it has to wait: for an upload or a pull (it is parked), for a
// graph that the client supplies, or for room in memory. A client that
// cancels, and the end of the session, forget what waits.
//
// The caller that takes a message owns the session's state until EndStep(). So
// does a caller of Cancel() or Drop() that learns that nothing runs.
//
// Thread-safe; next() is readable under any lock.
#ifndef GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_
#define GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/session/observe/run_log.h"
#include "gpu_worker/session/observe/session_profile.h"
#include "gpu_worker/session/state/inbox.h"
#include "gpu_worker/session/state/pulls.h"
#include "gpu_worker/session/uploads/uploads.h"

namespace djinn::worker {

// An Install whose bytes, or what may take their place, are on their way.
struct ParkedUpload {
  uint64_t sequence = 0;
  uint64_t storage = 0;
  bool birth = false;
  uint64_t transfer_id = 0;
  uint64_t size_bytes = 0;
  // The bytes come: nothing took their place.
  bool receives = false;
};
// What another worker sends, for an Install or for a session that enters.
struct ParkedPull {
  uint64_t sequence = 0;
  uint64_t storage = 0;
};

// What the queue for the device asks about a session's next message, and what
// operators ask at any moment. Atomics, each by itself.
class NextMessage {
 public:
  // Whether it is, but for Frees, a run in fast mode.
  bool fast_run() const { return fast_run_.load(std::memory_order_relaxed); }
  // The phase of its run as of the graph's last run; unspecified where it
  // is another message or the phase is not known.
  v1::Phase phase() const { return phase_.load(std::memory_order_relaxed); }
  // When it should be done; infinite when nothing says so.
  absl::Duration deadline() const {
    const int64_t deadline = deadline_.load(std::memory_order_relaxed);
    return deadline == kNever ? absl::InfiniteDuration()
                              : absl::Nanoseconds(deadline);
  }
  // What it takes at least, if it is a run with a deadline; 0 when that is not
  // known.
  absl::Duration expected() const {
    return absl::Nanoseconds(expected_.load(std::memory_order_relaxed));
  }
  // Runs that were received and are not over.
  uint32_t queued_runs() const { return queued_runs_; }

 private:
  friend class MessageFlow;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  std::atomic<bool> fast_run_{false};
  std::atomic<v1::Phase> phase_{v1::PHASE_UNSPECIFIED};
  std::atomic<int64_t> deadline_{kNever};
  std::atomic<int64_t> expected_{0};
  std::atomic<uint32_t> queued_runs_{0};
};

class MessageFlow {
 public:
  // What the executor does next: goes on with a parked message, or begins one,
  // with the graph that it waited for.
  struct Taken {
    std::optional<ParkedUpload> upload;
    std::optional<ParkedPull> pull;
    std::optional<Inbox::Item> item;
    std::optional<v1::DefineGraph> supply;
  };
  // What a stream learns of the flow.
  struct Position {
    // Completed, with every reply sent.
    uint64_t announced = 0;
    uint64_t received = 0;
    v1::Window window;
    // The graph that is asked for, or 0.
    uint64_t need = 0;
    // Another stream came before this one.
    bool resumed = false;
  };
  struct Completed {
    v1::Window window;
    bool empty = false;
    // The newest stream.
    uint64_t stream = 0;
  };
  // All outlive it.
  MessageFlow(const v1::SessionLimits& limits, Clock* clock, RunLog* log,
              Traffic* traffic, const Uploads* uploads, const Pulls* pulls)
      : limits_(limits),
        clock_(*clock),
        log_(*log),
        traffic_(*traffic),
        uploads_(*uploads),
        pulls_(*pulls),
        inbox_(limits) {}

  // --- Streams.
  // InvalidArgument (PROTOCOL_VIOLATION) when the client cannot be where it
  // says it is, with `last_reply` sent.
  absl::Status CheckResume(const v1::Resume& resume, uint64_t last_reply) const;
  // A newer stream takes over, and the session's window grows to `width`, which
  // is told whether the session had no stream. `take_over` makes it so. Both
  // run under the lock, so that nothing is completed meanwhile. No effect where
  // there is a newer stream, or the session was dropped.
  void Attach(uint64_t stream, absl::FunctionRef<WindowWidth(bool joins)> width,
              absl::FunctionRef<void(const Position&)> take_over);
  // Whether the newest stream left.
  bool Detach(uint64_t stream);
  // A message arrived at `now`, of a Run, that must have begun by `deadline`.
  // As Inbox::Add(); `expect_profile` is called, under the lock, if it starts a
  // profile. Whether there is something new to execute.
  absl::StatusOr<bool> Receive(v1::Ordered message, absl::Duration deadline,
                               std::optional<SessionProfile::Mark> mark,
                               absl::Duration now,
                               absl::FunctionRef<void()> expect_profile);
  // The answer to AskFor(): whether it was awaited. InvalidArgument
  // (PROTOCOL_VIOLATION) when the client was not asked.
  absl::StatusOr<bool> Supply(v1::DefineGraph supply);
  // DeadlineExceeded (NEED_TIMEOUT) when it does not come. Whether the session
  // has a stream.
  absl::StatusOr<bool> CheckNeed(absl::Duration now,
                                 absl::Duration timeout) const;

  // --- The executor.
  bool HasWork() const;
  // Takes what is next, if the session has work. `now` is nothing where a look
  // at the clock is not worth it: then nothing is noted.
  std::optional<Taken> Take(std::optional<absl::Duration> now);
  // Whether what is next is a Read, or a Free of at most so many storages.
  bool ReadOrFreeNext(size_t most_freed) const;
  // Whether a run in fast mode is next, perhaps behind a Free of at most so
  // many storages; takes it, if nothing is before it.
  bool FastRunNext(size_t most_freed) const;
  std::optional<Inbox::Item> TakeFastRun();
  // Whether a run is next that begins later than it must, with so much before
  // it.
  bool RunIsLate(absl::Duration ahead, absl::Duration now) const;
  // The message waits again, as if it had not been taken; for room, where it
  // `lacks_room`. False, and it is forgotten, when the session was dropped or
  // cancelled.
  bool PutBack(Inbox::Item item, bool lacks_room);
  // The same, until the graph was supplied. Returns the last sequence that
  // is completed.
  std::optional<uint64_t> AskFor(uint64_t graph_id, Inbox::Item item);
  // The message in progress waits for what is under way. False when the session
  // was dropped or cancelled.
  bool Park(const std::optional<ParkedUpload>& upload,
            const std::optional<ParkedPull>& pull);
  // As Inbox::Complete() and Grant().
  Completed Complete(uint64_t sequence, uint64_t bytes, bool counts,
                     WindowWidth width);
  // Every reply up to `sequence` was sent. False when another stream came since
  // Complete(), which may have missed some.
  bool Announce(uint64_t sequence, uint64_t stream);
  // Ends what Take() began, or Cancel() or Drop() left to the caller: calls
  // `free` to free the state if the session was dropped or cancelled. Returns
  // the last sequence that is completed if the client is to hear that it was
  // cancelled.
  std::optional<uint64_t> EndStep(absl::FunctionRef<void()> free);
  // What is known of the next message's run has changed.
  void Refresh();
  // A turn is over, and the client takes more replies unless it is `full`;
  // whether the session has more work.
  bool EndTurn(bool full, absl::Duration now);
  // The session is not served for want of credit.
  void NoteOutOfCredit(absl::Duration now);

  // --- Life.
  // Nothing that comes matters any more.
  bool over() const;
  // The client broke the protocol. Whether something still mattered before.
  bool Fail();
  // The client gives up what is not completed; the session ends.
  // `stop` is called, under the lock, before what waits is forgotten; `leave`,
  // if the session has a stream. True when the caller is to call EndStep(), as
  // nothing runs.
  bool Cancel(absl::FunctionRef<void()> stop);
  bool Drop(absl::FunctionRef<void()> leave);

  // --- Operators.
  const NextMessage& next() const { return next_; }
  // A run that was taken is over.
  void CountRun() { --next_.queued_runs_; }
  // Whether messages wait or one is being executed.
  bool busy() const;
  bool received_any() const;
  void Report(v1::SessionUse* use) const;
  void DescribeRuns(v1::LeaseRuns* runs);
  // What the next message waits for; TURN where it is ready. Nothing when there
  // is none, or one is being executed, or the client takes no replies.
  std::optional<v1::MessageWait> wait(bool full) const;

 private:
  // A graph whose plan the next run waits for.
  struct Need {
    uint64_t graph_id = 0;
    absl::Duration since;
    // The client's answer, until it is taken.
    std::optional<v1::DefineGraph> supply;
  };

  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return failed_ || dropped_ || cancelling_;
  }
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FastRunReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NeedsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return need_.has_value() && !need_->supply.has_value();
  }
  v1::RunGate GateLocked(bool full) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps next_ true when what is next has changed.
  void RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool PutBackLocked(Inbox::Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<RunLog::Waiting> WaitingRuns() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::SessionLimits& limits_;
  Clock& clock_;
  RunLog& log_;
  Traffic& traffic_;
  const Uploads& uploads_;
  const Pulls& pulls_;
  NextMessage next_;

  mutable Mutex mu_;
  Inbox inbox_ ABSL_GUARDED_BY(mu_);
  uint64_t announced_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of the newest stream, and whether it is still there.
  uint64_t stream_ ABSL_GUARDED_BY(mu_) = 0;
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Need> need_ ABSL_GUARDED_BY(mu_);
  // The graph of the last answer to a need. It may come once more: a
  // resumed stream repeats the question.
  uint64_t supplied_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<ParkedUpload> upload_ ABSL_GUARDED_BY(mu_);
  std::optional<ParkedPull> pull_ ABSL_GUARDED_BY(mu_);
  // The message that was last put back for want of room, and since when it
  // waits for it.
  uint64_t no_room_for_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration no_room_since_ ABSL_GUARDED_BY(mu_);
  // A caller owns the session's state.
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_
