// One client session on this worker, from the first accepted Hello until it is
// dropped. It receives ordered messages, executes them when its turn comes, and
// answers. Streams come and go meanwhile; without one, the session executes
// what it has received.
//
// The session takes in what the client sends, and composes its parts:
//   steps()   the execution of messages (session_steps.h)
//   log()     what held the runs, and how they ended (run_log.h)
//   outbox()  replies and news to the client (outbox.h)
//   state     the messages, and what the next one waits for (message_flow.h);
//             and their effects (session_state.h), which one handler per kind
//             of message makes (handlers.h)
//
// A message that needs bytes, a value of another worker, or a plan that was
// evicted parks the session: it has no work until they arrive, or until they
// are late. A session that leaves for another worker offers all that it holds,
// and executes nothing until it stays after all, or ends. A session that enters
// is parked until all of that has arrived; if some does not, it holds nothing.
//
// Threading: several threads at once may deliver what streams bring, at any
// time. One executor thread uses steps(). Any thread may call the rest. The
// session has no lock: its parts guard themselves, and the flow says who owns
// the state.
//
// A client that breaks the protocol makes the session call `fail` once. The
// session then ignores everything until it is dropped.
#ifndef GPU_WORKER_SESSION_SESSION_H_
#define GPU_WORKER_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/transport/stream.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/types.pb.h"
#include "djinn/v1/usage.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/leases/lease_meter.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/run_log.h"
#include "gpu_worker/session/session_steps.h"
#include "gpu_worker/session/state/next_message.h"
#include "gpu_worker/session/state/session_identity.h"
#include "gpu_worker/session/state/tenant_account.h"
#include "gpu_worker/store/quota.h"

namespace djinn::v1 {
class ControlRequest;
class Ordered;
class Resume;
class WorkerHello;
}  // namespace djinn::v1

namespace djinn::worker {

class Outbox;
struct SessionState;

class Session {
 public:
  // `environment` must outlive the session. The session adds the time that it
  // uses outside its turns, and the bytes that it moves, to `meter`.
  Session(const SessionEnvironment* environment, std::string session_id,
          std::string tenant, std::shared_ptr<TenantAccount> account,
          std::shared_ptr<LeaseMeter> meter, v1::SessionLimits limits,
          SessionCallbacks callbacks);
  ~Session();

  // --- Parts, for any thread.
  const SessionIdentity& who() const;
  const SessionStatus& status() const;
  const SessionQuota& quota() const;
  const NextMessage& next() const;
  RunLog& log();
  Outbox& outbox();
  // For the executor thread alone.
  SessionSteps& steps() { return steps_; }

  // --- Streams.

  // Returns InvalidArgument (PROTOCOL_VIOLATION) when the client's position is
  // impossible.
  absl::Status CheckResume(const v1::Resume& resume) const;
  // Answers over `stream` from now on: first with `hello`, completed by what
  // was received, then with the replies that were not acknowledged. Streams are
  // numbered in the order of their Hellos; a late call for an older one is
  // without effect.
  void Attach(WorkerStream* stream, uint64_t number, v1::WorkerHello hello,
              uint64_t acknowledged_reply, StreamWay way = StreamWay::kLocal);
  // Takes the stream away from the session, which does not use it any more when
  // this returns.
  void Detach(const WorkerStream* stream, uint64_t number);
  void Receive(v1::ControlRequest message);
  void ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                   absl::Span<const absl::string_view> pieces);

  // --- Life, for any thread.

  // Applies the new claims of the session's lease.
  void Apply(const v1::LeaseClaims& lease);
  // Gives up a transfer, a pull or a graph that does not arrive, and ends the
  // session of a client that does not acknowledge its replies.
  void CheckDeadlines();
  // Prevents further nodes from beginning. Drop() must follow.
  void Stop();
  // Frees everything, at once or when the current node is done.
  void Drop();

  // --- Operators, any thread. The numbers need not be of one moment.
  v1::SessionUse use() const;
  void DescribeRuns(v1::LeaseRuns* runs);
  // Returns whether messages wait or one is being executed.
  bool busy() const;
  // Returns whether a message is being executed.
  bool executing() const;
  // Returns whether the client ever sent a message.
  bool received_any() const;
  // Returns what the next message waits for. TURN means that it is ready; the
  // caller completes the description.
  std::optional<v1::MessageWait> wait() const;

 private:
  // Handles one message of the stream. Returns true when there is something new
  // to execute.
  bool ReceiveOne(v1::ControlRequest message);
  bool ReceiveOrdered(v1::Ordered message);
  void Cancel();

  const std::unique_ptr<SessionState> state_;
  SessionSteps steps_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_SESSION_H_
