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
// state away from it: PutBack() and Park() then fail, and its own
// EndStep() frees the state. If no caller owns the state, Cancel() and Drop()
// return true and their caller owns it until it calls EndStep(), which frees
// it.
//
// Thread-safe; next() is readable under any lock. One lock guards the inbox,
// the newest stream, what the next message waits for, and how the session
// ended, because a message may not be taken, forgotten or announced in between.
#ifndef GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_
#define GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_

#include <cstdint>
#include <optional>

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
#include "gpu_worker/session/state/message_hold.h"
#include "gpu_worker/session/state/next_message.h"
#include "gpu_worker/session/state/pulls.h"
#include "gpu_worker/session/uploads/uploads.h"

namespace djinn::worker {

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
  // Facts by which the executor decides. Only the owner of the state, Cancel()
  // and Drop() take away what was next.
  struct Upcoming {
    bool has_work = false;
    // A Read is next, or a Free of so many storages.
    bool read_or_free = false;
    size_t freed = 0;
    // A run in fast mode that may join a batch is ready, perhaps behind a Free.
    bool fast_run = false;
    // The deadline of the next message, if it is a run; otherwise infinite.
    absl::Duration run_deadline = absl::InfiniteDuration();
  };
  // Why a message waits again.
  struct Lack {
    bool room = false;
    // The graph that the client has to supply, or 0.
    uint64_t graph_id = 0;
  };
  // Counts messages that were received and are not completed.
  struct Counts {
    bool received_any = false;
    uint64_t outstanding = 0;
    // As the window counts them.
    uint64_t outstanding_bytes = 0;
    // True while a message is being executed, or messages wait.
    bool busy = false;
    bool executing = false;
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
      : clock_(*clock),
        log_(*log),
        traffic_(*traffic),
        inbox_(limits),
        hold_(limits, uploads, pulls) {}

  // --- Streams.

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
  // Accepts the graph that a message lacks. Returns whether the flow waited for
  // it, or InvalidArgument (PROTOCOL_VIOLATION) when the client was not asked.
  absl::StatusOr<bool> Supply(v1::DefineGraph supply);
  // Returns DeadlineExceeded (NEED_TIMEOUT) when the requested graph has not
  // arrived in time. Otherwise returns whether the session has a stream.
  absl::StatusOr<bool> CheckNeed(absl::Duration now,
                                 absl::Duration timeout) const;

  // --- The executor.
  Upcoming upcoming() const;
  // Takes the next step, if the session has work; the caller then owns the
  // session's state until EndStep(). Without `now`, which saves a reading of
  // the clock, nothing is recorded.
  std::optional<Taken> Take(std::optional<absl::Duration> now);
  // Takes the run in fast mode that is next, if no Free is before it; the
  // caller then owns the session's state until EndStep().
  std::optional<Inbox::Item> TakeFastRun();
  // Makes the message wait again, as if it had not been taken, for what it
  // lacks. Returns the last sequence that is completed. Returns nothing, and
  // forgets the message, when the session was dropped or cancelled.
  std::optional<uint64_t> PutBack(Inbox::Item item, Lack lack);
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
  // the last completed sequence if the client must still be told that its
  // session was cancelled.
  std::optional<uint64_t> EndStep(absl::FunctionRef<void()> free);
  // Updates next() when what is known of the next message's run has changed.
  void Refresh();
  // Ends a turn. `full` says that the client takes no more replies. Returns
  // whether the session has more work.
  bool EndTurn(bool full, absl::Duration now);
  // Notes that the session is not served because it lacks credit.
  void NoteOutOfCredit(absl::Duration now);

  // --- Life.

  // Returns whether further messages are ignored: the session failed, was
  // cancelled or was dropped.
  bool over() const;
  // Notes that the client broke the protocol. Returns false if the session was
  // over already.
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
  Counts counts() const;
  void DescribeRuns(v1::LeaseRuns* runs);
  // Returns what the next message waits for; TURN when it is ready. Returns
  // nothing when there is no message, when one is being executed, or when the
  // client takes no replies.
  std::optional<v1::MessageWait> wait(bool full) const;

 private:
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return failed_ || dropped_ || cancelling_;
  }
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Upcoming UpcomingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::RunGate GateLocked(bool full) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Updates next_ after the next message has changed.
  void RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock& clock_;
  RunLog& log_;
  Traffic& traffic_;
  NextMessage next_;

  mutable Mutex mu_;
  Inbox inbox_ ABSL_GUARDED_BY(mu_);
  uint64_t announced_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of the newest stream, and whether it is still there.
  uint64_t stream_ ABSL_GUARDED_BY(mu_) = 0;
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  MessageHold hold_ ABSL_GUARDED_BY(mu_);
  // True while a caller owns the session's state: from Take(), TakeFastRun(),
  // or a Cancel() or Drop() that returned true, until EndStep().
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_MESSAGE_FLOW_H_
