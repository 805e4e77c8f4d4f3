// The state of a session on this worker. It is a function of the session's
// ordered messages and of the contents' bytes.
//
// One caller at a time owns it: the executor, from MessageFlow::Take() until
// EndStep(), or the caller that frees it. Comments mark the fields that are
// thread-safe by themselves. The handlers (handlers.h) are functions over it.
#ifndef GPU_WORKER_SESSION_STATE_SESSION_STATE_H_
#define GPU_WORKER_SESSION_STATE_SESSION_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/ongoing_run.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/session/observe/profiling.h"
#include "gpu_worker/session/observe/result_times.h"
#include "gpu_worker/session/observe/run_log.h"
#include "gpu_worker/session/observe/run_trace.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/session/observe/session_profile.h"
#include "gpu_worker/session/state/graph_table.h"
#include "gpu_worker/session/state/message_flow.h"
#include "gpu_worker/session/state/models.h"
#include "gpu_worker/session/state/offers.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/session/state/pulls.h"
#include "gpu_worker/session/state/session_identity.h"
#include "gpu_worker/session/state/shared_copies.h"
#include "gpu_worker/session/state/state_arrival.h"
#include "gpu_worker/session/uploads/uploads.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_memory.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

// The message in progress, and the decisions of its handler.
struct MessageInProgress {
  // The received bytes to count; 0 when they are counted, or the message waits
  // again.
  uint64_t bytes = 0;
  // True when the window counts the message.
  bool counts = false;
  absl::Duration deadline = absl::InfiniteDuration();
  absl::Duration arrived;
  std::optional<SessionProfile::Mark> mark;
  // Set by a handler that parks the message until this is settled.
  std::optional<ParkedUpload> upload;
  std::optional<ParkedPull> pull;
  // Set by a handler whose message must wait: for this graph, if not 0, or for
  // memory.
  uint64_t missing_graph = 0;
  bool lacks_room = false;
  // Null unless the message is a run of a trace that this worker takes.
  std::unique_ptr<RunTrace> trace;
};

// The session's runs.
struct SessionRuns {
  // A run that the executor executes step by step, in a batch.
  struct Begun {
    Inbox::Item item;
    std::shared_ptr<const Plan> plan;
    // Whether it is the first run of its graph.
    bool first = false;
    RunContext context;
    std::unique_ptr<OngoingRun> run;
  };
  // The products of the last run that was considered for a batch. They stay the
  // same while it is next.
  struct LookedAt {
    uint64_t sequence = 0;
    std::vector<OngoingRun::Product> products;
  };

  BoundRun bound;
  // Null unless a run has begun in a batch.
  std::unique_ptr<Begun> begun;
  LookedAt looked_at;
  // The work ahead of the run, when the run is only to be refused.
  absl::Duration ahead;
  uint64_t done = 0;
  ResultTimes results;
};

// The replies to the client.
struct SessionReplies {
  SessionReplies(uint64_t limit_bytes, Traffic* traffic, Clock* clock,
                 std::function<void()> on_room)
      : outbox(limit_bytes, traffic, clock, std::move(on_room)) {}

  Outbox outbox;  // thread-safe
  // Answers of the message in progress, sent when it is done.
  std::vector<v1::ControlResponse> pending;
  // The last sequence and window reported to the client.
  uint64_t reported = 0;
  v1::Window window;
};

// The measurements while the session is profiled.
struct SessionProfiling {
  Profiling arrivals;  // thread-safe
  // Null while the session is not profiled.
  std::shared_ptr<SessionProfile> profile;
  // The times of the run in progress.
  SessionProfile::RunStages stages;

  void Enter(SessionProfile::Stage stage) {
    if (ABSL_PREDICT_FALSE(profile != nullptr)) profile->Enter(stage);
  }
};

struct SessionState {
  explicit SessionState(SessionIdentity identity);

  const SessionIdentity who;
  SessionStatus status;  // thread-safe
  SessionCounts counts;  // thread-safe
  RunLog log;            // thread-safe
  // Declared before the storages, which return their shares to it.
  SessionQuota quota;
  StorageTable storages;
  StorageMemory storage_memory;
  Models models;
  GraphTable graphs;
  RootErrors errors;
  UsedIds transfer_ids;
  Offers offers;
  SharedCopies copies;
  Pulls pulls;      // thread-safe, see pulls.h
  Uploads uploads;  // thread-safe
  // True when everything is offered to another worker: nothing may change.
  bool leaving = false;
  // Null unless the session is arriving from another worker.
  std::unique_ptr<StateArrival> entering;
  MessageInProgress message;
  SessionRuns runs;
  SessionProfiling profiling;
  MessageFlow flow;  // thread-safe
  SessionReplies replies;
};

// Finds the storage that a message with this base version acts on, or creates
// it, and increments its version. Returns InvalidArgument (PROTOCOL_VIOLATION)
// when the version does not fit.
absl::StatusOr<Storage*> NextVersion(SessionState& s, uint64_t id,
                                     uint64_t base_version);
// Ends the session, once, because the client broke the protocol.
void Fail(SessionState& s, absl::Status status);
inline void FailUnlessOk(SessionState& s, absl::Status status) {
  if (!status.ok()) Fail(s, std::move(status));
}
// Reports the number of storages to the account. Ends the session when the
// tenant has too many.
void CountStorages(SessionState& s);
// Frees everything that the session has.
void FreeState(SessionState& s);
// Returns a callback for events outside the session that may settle what it
// waits for. It may be called at any time, and may outlive the session.
std::function<void()> SettledCallback(const SessionState& s);

// --- Replies.

// Adds an answer, which is sent when the message in progress is done.
inline void Reply(SessionState& s, v1::ControlResponse response) {
  s.replies.pending.push_back(std::move(response));
}
// Adds the room for eager uploads to a response of the session, if it has
// changed.
void SayRoom(SessionState& s, v1::ControlResponse* response);
uint64_t RoomForContents(const SessionState& s);
// Adds the timing of a Read to its reply, when only sending it is left.
void AddTiming(const SessionState& s, v1::ControlResponse* response);
// Sends new root errors and replies: every message up to `sequence` is done.
void Complete(SessionState& s, uint64_t sequence);
// Returns what the lease has used so far.
v1::MeteredUse UseSoFar(const SessionState& s);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SESSION_STATE_H_
