// Follows a session's ordered messages from their arrival to their completion:
// which one is next, what it waits for, and whether the session is over.
//
// Streams add messages. The executor takes one at a time, and returns it when
// it has to wait: for an upload or a pull (the message is parked), for a graph
// that the client supplies, or for memory. When the client cancels, or the
// session ends, the messages that wait are forgotten.
//
// Ownership: one caller at a time owns the session's state, which it may use
// without the flow's lock. A caller of Take() or TakeFastRun() that gets a step
// owns the state from then until EndStep(). Cancel() and Drop() do not take the
// state away from it: PutBack(), AskFor() and Park() then fail, and its own
// EndStep() frees the state. If no caller owns the state, Cancel() and Drop()
// return true and their caller owns it until it calls EndStep(), which frees
// it.
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

// An Install that waits for its bytes, or for an equal content.
struct ParkedUpload {
  uint64_t sequence = 0;
  uint64_t storage = 0;
  bool birth = false;
  uint64_t transfer_id = 0;
  uint64_t size_bytes = 0;
  // True when the bytes arrive, because no equal content was found.
  bool receives = false;
};
// A value that another worker sends, for an Install or for a session that
// enters.
struct ParkedPull {
  uint64_t sequence = 0;
  uint64_t storage = 0;
};

// What the queue for the device, and operators, read about a session's next
// message at any moment. Each field is an atomic by itself.
class NextMessage {
 public:
  // Returns whether the next message, but for a Free, is a run in fast mode.
  bool fast_run() const { return fast_run_.load(std::memory_order_relaxed); }
  // Returns the phase of its run, as of the graph's last run; unspecified when
  // it is another message or the phase is not known.
  v1::Phase phase() const { return phase_.load(std::memory_order_relaxed); }
  // Returns the deadline of the message; infinite when it has none.
  absl::Duration deadline() const {
    const int64_t deadline = deadline_.load(std::memory_order_relaxed);
    return deadline == kNever ? absl::InfiniteDuration()
                              : absl::Nanoseconds(deadline);
  }
  // Returns the least time that the message takes, if it is a run with a
  // deadline; 0 when that is not known.
  absl::Duration expected() const {
    return absl::Nanoseconds(expected_.load(std::memory_order_relaxed));
  }
  // Returns how many runs were received and are not over.
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
  // The executor's next step: it resumes a parked message, or begins a message,
  // with the graph that it waited for.
  struct Taken {
    std::optional<ParkedUpload> upload;
    std::optional<ParkedPull> pull;
    std::optional<Inbox::Item> item;
    std::optional<v1::DefineGraph> supply;
  };
  // The state of the flow that a new stream reports to the client.
  struct Position {
    // The last sequence that is completed, with every reply sent.
    uint64_t announced = 0;
    uint64_t received = 0;
    v1::Window window;
    // The graph that the client has to supply, or 0.
    uint64_t need = 0;
    // True when the session had another stream before this one.
    bool resumed = false;
  };
  struct Completed {
    v1::Window window;
    bool empty = false;
    // The number of the newest stream.
    uint64_t stream = 0;
  };
  // All arguments must outlive this.
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
  //
  // Returns InvalidArgument (PROTOCOL_VIOLATION) when the client's position is
  // impossible. `last_reply` is the last reply that was sent.
  absl::Status CheckResume(const v1::Resume& resume, uint64_t last_reply) const;
  // Lets a newer stream take over, and grows the session's window to `width`,
  // whose argument says whether the session had no stream. `take_over` uses the
  // stream. Both run under the lock, so that nothing is completed meanwhile.
  // Without effect when there is a newer stream, or the session was dropped.
  void Attach(uint64_t stream, absl::FunctionRef<WindowWidth(bool joins)> width,
              absl::FunctionRef<void(const Position&)> take_over);
  // Notes that the stream left. Returns whether it was the newest.
  bool Detach(uint64_t stream);
  // Adds a message with its deadline; `now` is when it arrived, if it is a Run.
  // Returns the errors of Inbox::Add(). Calls `expect_profile`, under the lock,
  // if the message starts a profile. Returns whether there is something new to
  // execute.
  absl::StatusOr<bool> Receive(v1::Ordered message, absl::Duration deadline,
                               std::optional<SessionProfile::Mark> mark,
                               absl::Duration now,
                               absl::FunctionRef<void()> expect_profile);
  // Accepts the client's answer to AskFor(). Returns whether the flow waited
  // for it, or InvalidArgument (PROTOCOL_VIOLATION) when the client was not
  // asked.
  absl::StatusOr<bool> Supply(v1::DefineGraph supply);
  // Returns DeadlineExceeded (NEED_TIMEOUT) when the requested graph has not
  // arrived in time. Otherwise returns whether the session has a stream.
  absl::StatusOr<bool> CheckNeed(absl::Duration now,
                                 absl::Duration timeout) const;

  // --- The executor.
  bool HasWork() const;
  // Takes the next step, if the session has work; the caller then owns the
  // session's state until EndStep(). Without `now`, which saves a reading of
  // the clock, nothing is recorded.
  std::optional<Taken> Take(std::optional<absl::Duration> now);
  // Returns whether the next message is a Read, or a Free of at most so many
  // storages.
  bool ReadOrFreeNext(size_t most_freed) const;
  // FastRunNext() returns whether a run in fast mode is next, perhaps behind a
  // Free of at most so many storages. TakeFastRun() takes it, if no Free is
  // before it; the caller then owns the session's state until EndStep().
  bool FastRunNext(size_t most_freed) const;
  std::optional<Inbox::Item> TakeFastRun();
  // Returns whether the next message is a run that will miss its deadline, with
  // `ahead` to be executed before it.
  bool RunIsLate(absl::Duration ahead, absl::Duration now) const;
  // Makes the message wait again, as if it had not been taken; for memory, if
  // it `lacks_room`. Returns false, and forgets the message, when the session
  // was dropped or cancelled.
  bool PutBack(Inbox::Item item, bool lacks_room);
  // Makes the message wait again until the client has supplied the graph.
  // Returns the last sequence that is completed, or nothing when the session
  // was dropped or cancelled.
  std::optional<uint64_t> AskFor(uint64_t graph_id, Inbox::Item item);
  // Parks the message in progress until the upload or pull is settled. Returns
  // false when the session was dropped or cancelled.
  bool Park(const std::optional<ParkedUpload>& upload,
            const std::optional<ParkedPull>& pull);
  // Does Inbox::Complete() and Grant().
  Completed Complete(uint64_t sequence, uint64_t bytes, bool counts,
                     WindowWidth width);
  // Notes that every reply up to `sequence` was sent. Returns false when
  // another stream was attached since Complete(): it may have missed some.
  bool Announce(uint64_t sequence, uint64_t stream);
  // Ends the caller's ownership of the session's state, whether Take(),
  // TakeFastRun(), Cancel() or Drop() gave it. If the session was dropped or
  // cancelled, first calls `free`, without the lock, to free the state. Returns
  // the last completed sequence if the client must be sent the news that it was
  // cancelled.
  std::optional<uint64_t> EndStep(absl::FunctionRef<void()> free);
  // Updates next() when what is known of the next message's run has changed.
  void Refresh();
  // Ends a turn. `full` says that the client takes no more replies. Returns
  // whether the session has more work.
  bool EndTurn(bool full, absl::Duration now);
  // Notes that the session is not served because it lacks credit.
  void NoteOutOfCredit(absl::Duration now);

  // --- Life.
  //
  // Returns whether further messages are ignored: the session failed, was
  // cancelled or was dropped.
  bool over() const;
  // Notes that the client broke the protocol. Returns whether the session was
  // not over before.
  bool Fail();
  // Cancel() gives up what is not completed, for the client; Drop() ends the
  // session. Each forgets the messages that wait. Cancel() calls `stop`, under
  // the lock, before that. Drop() calls `leave`, under the lock, if the session
  // has a stream. Return true if no step is in progress: the caller then owns
  // the session's state and must call EndStep(). Return false if the step in
  // progress ends it, or if there is nothing to do: the session is over for
  // Cancel(), or was dropped for Drop().
  bool Cancel(absl::FunctionRef<void()> stop);
  bool Drop(absl::FunctionRef<void()> leave);

  // --- Operators.
  const NextMessage& next() const { return next_; }
  // Notes that a run that was taken is over.
  void CountRun() { --next_.queued_runs_; }
  // Returns whether messages wait or one is being executed.
  bool busy() const;
  bool received_any() const;
  void Report(v1::SessionUse* use) const;
  void DescribeRuns(v1::LeaseRuns* runs);
  // Returns what the next message waits for; TURN when it is ready. Returns
  // nothing when there is no message, when one is being executed, or when the
  // client takes no replies.
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
  // Updates next_ after the next message has changed.
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
  // The graph of the last answer to a need. The answer may arrive once more,
  // because a resumed stream repeats the question.
  uint64_t supplied_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<ParkedUpload> upload_ ABSL_GUARDED_BY(mu_);
  std::optional<ParkedPull> pull_ ABSL_GUARDED_BY(mu_);
  // The message that was last put back for lack of memory, and since when it
  // waits for it.
  uint64_t no_room_for_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration no_room_since_ ABSL_GUARDED_BY(mu_);
  // True while a caller owns the session's state: from Take(), TakeFastRun(),
  // or a Cancel() or Drop() that returned true, until EndStep().
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_
