// What a session has on this worker: a function of its ordered messages and of
// contents' bytes.
//
// One caller at a time owns it: the executor, from MessageFlow::Take() until
// EndStep(), or the caller that frees it. Fields that are thread-safe by
// themselves say so. The handlers (handlers.h) are functions over it.
#ifndef GPU_WORKER_SESSION_STATE_SESSION_STATE_H_
#define GPU_WORKER_SESSION_STATE_SESSION_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/leases/lease_meter.h"
#include "gpu_worker/leases/lease_turn.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/ongoing_run.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/profiling.h"
#include "gpu_worker/session/observe/result_times.h"
#include "gpu_worker/session/observe/run_log.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/session/observe/session_profile.h"
#include "gpu_worker/session/state/graph_table.h"
#include "gpu_worker/session/state/message_flow.h"
#include "gpu_worker/session/state/models.h"
#include "gpu_worker/session/state/offers.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/session/state/pulls.h"
#include "gpu_worker/session/state/state_arrival.h"
#include "gpu_worker/session/state/tenant_account.h"
#include "gpu_worker/session/uploads/uploads.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_memory.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

struct SessionCallbacks {
  // There may be work again. May outlive the session.
  std::function<void()> runnable;
  // The client broke the protocol: close its stream with this status.
  std::function<void(absl::Status)> fail;
  // Its runs are of another phase, and perhaps priority, from this one on.
  std::function<void()> phase;
};

// Whose session it is. Constant.
struct SessionIdentity {
  const SessionEnvironment& environment;
  const std::string session_id;
  const std::string tenant;
  const v1::SessionLimits limits;
  const SessionCallbacks callbacks;
  const std::shared_ptr<TenantAccount> account;
  const std::shared_ptr<LeaseMeter> meter;
  // As other sessions' records name it.
  const std::shared_ptr<const RunPeer> peer;

  Traffic& traffic() const { return *meter->traffic(); }
};

// What its lease asks for, and what it does. Thread-safe: atomics.
struct SessionStatus {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // The priority class that the lease declares.
  std::atomic<v1::PriorityClass> declared{v1::PRIORITY_CLASS_UNSPECIFIED};
  // In nanoseconds: how long runs may wait until they begin.
  std::atomic<int64_t> run_deadline{kNever};
  // Of the last run that was executed, which what it does since then counts
  // with; unspecified before the first one.
  std::atomic<v1::Phase> phase{v1::PHASE_UNSPECIFIED};
  // The remaining nodes of a run are left out.
  std::atomic<bool> stopped{false};
  // The client gave up what is not executed.
  std::atomic<bool> cancelled{false};
  std::atomic<uint64_t> storages{0};
  std::atomic<uint32_t> graphs{0};
  // Room for eager uploads, as the client was told.
  std::atomic<uint64_t> reported_room{0};

  int priority() const {
    return PriorityOf(declared.load(std::memory_order_relaxed),
                      phase.load(std::memory_order_relaxed));
  }
};

// The message in progress, and what its handler decides about it.
struct MessageInProgress {
  // 0 when they are paid for, or the message waits again.
  uint64_t bytes = 0;
  // Whether the window counts it.
  bool counts = false;
  absl::Duration deadline = absl::InfiniteDuration();
  absl::Duration arrived;
  std::optional<SessionProfile::Mark> mark;
  // It is parked until this is settled.
  std::optional<ParkedUpload> upload;
  std::optional<ParkedPull> pull;
  // It waits for this graph, if not 0, or for room.
  uint64_t missing_graph = 0;
  bool lacks_room = false;
};

// Runs, and what is known of them.
struct SessionRuns {
  // A run that the executor executes step by step, in a batch.
  struct Begun {
    Inbox::Item item;
    std::shared_ptr<const Plan> plan;
    RunContext context;
    std::unique_ptr<OngoingRun> run;
  };
  // The products of the last run that was to join a batch. While it is next,
  // they are the same.
  struct LookedAt {
    uint64_t sequence = 0;
    std::vector<OngoingRun::Product> products;
  };

  BoundRun bound;
  // Null unless one was begun so.
  std::unique_ptr<Begun> begun;
  LookedAt looked_at;
  // The work before the run, if that is only to be refused.
  absl::Duration ahead;
  uint64_t done = 0;
  ResultTimes results;
};

// What goes to the client.
struct SessionReplies {
  SessionReplies(uint64_t limit_bytes, Traffic* traffic, Clock* clock,
                 std::function<void()> on_room)
      : outbox(limit_bytes, traffic, clock, std::move(on_room)) {}

  Outbox outbox;  // thread-safe
  // Answers of the message in progress, sent when it is done.
  std::vector<v1::ControlResponse> pending;
  // The last sequence and window that the client was told.
  uint64_t reported = 0;
  v1::Window window;
};

// What is measured while the session is profiled.
struct SessionProfiling {
  Profiling arrivals;  // thread-safe
  // Null while the session is not profiled.
  std::shared_ptr<SessionProfile> profile;
  // Of the run in progress.
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
  // Before the storages, which return their shares.
  SessionQuota quota;
  StorageTable storages;
  StorageMemory storage_memory;
  Models models;
  GraphTable graphs;
  RootErrors errors;
  UsedIds transfer_ids;
  Offers offers;
  Pulls pulls;      // thread-safe, in part
  Uploads uploads;  // thread-safe
  // Everything is offered to another worker: nothing may change.
  bool leaving = false;
  // Null unless the session comes from another worker right now.
  std::unique_ptr<StateArrival> entering;
  MessageInProgress message;
  SessionRuns runs;
  SessionProfiling profiling;
  MessageFlow flow;  // thread-safe
  SessionReplies replies;
};

// Finds the storage that a message with this base version acts on, or creates
// it; moves its version on by one. InvalidArgument (PROTOCOL_VIOLATION).
absl::StatusOr<Storage*> NextVersion(SessionState& s, uint64_t id,
                                     uint64_t base_version);
// The client broke the protocol: has the session end, once.
void Fail(SessionState& s, absl::Status status);
// Tells the account how many storages there are; ends the session when the
// tenant has too many.
void CountStorages(SessionState& s);
// Frees everything that the session has.
void FreeState(SessionState& s);
// To be called when something may be settled outside the session, at any time;
// may outlive the session.
std::function<void()> SettledCallback(const SessionState& s);

// --- Replies.
// Answers when the message in progress is done.
inline void Reply(SessionState& s, v1::ControlResponse response) {
  s.replies.pending.push_back(std::move(response));
}
// Says in a response of the session how much room there is for eager uploads,
// if that has changed.
void SayRoom(SessionState& s, v1::ControlResponse* response);
uint64_t RoomForContents(const SessionState& s);
// Adds to the reply to a Read what it met, when nothing but sending it is left.
void AddTiming(const SessionState& s, v1::ControlResponse* response);
// Sends new root errors and replies: every message up to `sequence` is done.
void Complete(SessionState& s, uint64_t sequence);
// What the lease has used so far.
v1::MeteredUse UseSoFar(const SessionState& s);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_SESSION_STATE_H_
