// One client session on this worker, from the first accepted Hello until it is
// dropped: receives ordered messages, executes them when its turn comes, and
// answers. Streams come and go meanwhile; without one it goes on with what it
// received.
//
// The session composes its parts and steps through its messages:
//   flow()    the messages, and what the next one waits for (message_flow.h)
//   state     what the messages led to (session_state.h), which one handler per
//             kind of message changes (handlers.h)
//   log()     what held its runs and became of them (run_log.h)
//   outbox()  what goes to the client (outbox.h)
//
// A message that needs bytes, a value of another worker, or a plan that was
// evicted parks the session: it has no work until they came, or until they did
// not come for too long. A session that leaves for another worker offers all
// that it holds, and stands still until it stays after all, or ends. One that
// enters is parked until all of that came, and holds nothing if it does not.
//
// Threading: what a stream brings may come at any time and from several
// threads; one executor thread steps; any thread may call the rest.
//
// A peer that breaks the protocol makes the session call `fail` once; it then
// ignores everything until it is dropped.
#ifndef GPU_WORKER_SESSION_SESSION_H_
#define GPU_WORKER_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/usage.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/leases/lease_meter.h"
#include "gpu_worker/plan/ongoing_run.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/run_log.h"
#include "gpu_worker/session/state/message_flow.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/session/state/session_state.h"
#include "gpu_worker/session/state/tenant_account.h"
#include "gpu_worker/session/uploads/uploads.h"

namespace djinn::worker {

class Session {
 public:
  // `environment` outlives the session. What the session uses outside its
  // turns, and the bytes that move, are added to `meter`.
  Session(const SessionEnvironment* environment, std::string session_id,
          std::string tenant, std::shared_ptr<TenantAccount> account,
          std::shared_ptr<LeaseMeter> meter, v1::SessionLimits limits,
          SessionCallbacks callbacks);
  ~Session();

  // --- Parts, for any thread.
  const SessionIdentity& who() const { return state_->who; }
  const SessionStatus& status() const { return state_->status; }
  const SessionQuota& quota() const { return state_->quota; }
  MessageFlow& flow() { return state_->flow; }
  const NextMessage& next() const { return state_->flow.next(); }
  RunLog& log() { return state_->log; }
  Outbox& outbox() { return state_->replies.outbox; }

  // --- Streams.
  // InvalidArgument (PROTOCOL_VIOLATION) when the client cannot be where it
  // says it is.
  absl::Status CheckResume(const v1::Resume& resume) const;
  // Answers over `stream` from now on: first with `hello`, completed by what
  // was received, then with the replies that were not acknowledged. Streams are
  // numbered in the order of their Hellos; a late call for an older one is
  // without effect.
  void Attach(WorkerStream* stream, uint64_t number, v1::WorkerHello hello,
              uint64_t acknowledged_reply, StreamWay way = StreamWay::kLocal);
  // The stream is not used any more when it returns.
  void Detach(const WorkerStream* stream, uint64_t number);
  void Receive(v1::ControlRequest message);
  void ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                   absl::Span<const absl::string_view> pieces);

  // --- The executor.
  bool HasWork() const;
  // Executes one message, or what remains of one, from `now` on. No work: does
  // nothing. Returns whether it was a run.
  bool Step(absl::Duration now);
  // Executes Reads and Frees as long as nothing else is next, `most` at most.
  void StepReadsAndFrees(int most);
  // If what is next, but for a Free, is a run that cannot be done by its
  // deadline with so much to be done before it: refuses it, and says so.
  void StepRefusal(absl::Duration ahead);
  // Begins the run in fast mode that is next for the caller to execute, if
  // `suits` says so of its products; EndRun() follows when it is done. Null,
  // and nothing happened but Frees before it, when it does not suit, or
  // something other than executing it is to be done first: in another
  // session's turn, which would pay for it, also having a plan made.
  OngoingRun* BeginRun(
      absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
      bool own_turn);
  // That run is executed from `now` on; the device was busy with it for so
  // long.
  void NoteBegun(absl::Duration now);
  void EndRun(absl::Duration used);
  // A turn is over. HasWork().
  bool EndTurn(absl::Duration now);

  // --- Life, for any thread.
  // The session's lease says this from now on.
  void Apply(const v1::LeaseClaims& lease);
  // Gives up a transfer, a pull, or a graph that does not come; and a
  // client that lets all stand still that is kept for it.
  void CheckDeadlines();
  // No further node begins; Drop() is to follow.
  void Stop() { state_->status.stopped = true; }
  // Frees everything, at once or when the current node is done.
  void Drop();

  // --- Operators, any thread. The numbers need not be of one moment.
  v1::SessionUse use() const;
  // What its next message waits for; TURN where it is ready, of which the
  // caller knows the rest.
  std::optional<v1::MessageWait> wait() const;

 private:
  // A message that nothing follows. True: there is something new to execute.
  bool ReceiveOne(v1::ControlRequest message);
  bool ReceiveOrdered(v1::Ordered message);
  void Cancel();
  // Step(); `now` is nothing where a look at the clock is not worth it, as for
  // a Read or a Free.
  bool StepAt(std::optional<absl::Duration> now);
  // Executes `item`, with the graph it waited for, if any. Sets it down
  // again when it has to wait.
  absl::Status StepItem(Inbox::Item item,
                        std::optional<v1::DefineGraph> supply);
  // The message is done, unless it was parked.
  void CompleteUnlessParked(uint64_t sequence);
  // Ends what began with taking a message.
  void EndStep();
  void FailUnlessOk(absl::Status status);

  const std::unique_ptr<SessionState> state_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_SESSION_H_
