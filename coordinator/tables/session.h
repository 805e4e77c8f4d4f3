// Holds the facts about one session, in parts by concern.
//
// Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_SESSION_H_
#define COORDINATOR_TABLES_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/token_bucket.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/tables/worker.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/batch.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/recovery.pb.h"
#include "djinn/v1/session.pb.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/migration.h"

namespace djinn::coordinator {

// A lease that was requested and is not granted yet.
struct PendingLease {
  // The contents that will be uploaded, each once; the memory that is needed
  // besides; and the sum of both. The client states these numbers; a lease may
  // allow less.
  absl::flat_hash_set<ContentKey> contents;
  uint64_t needed_bytes = 0;
  uint64_t asked_bytes = 0;
  // Monotonic time after which the request is refused.
  absl::Duration deadline;
  // The offered lease; empty while no worker was found.
  std::string lease_id;
  // Why no worker was found the last time.
  absl::Status obstacle;
  // The request's ticket in the wait queue; 0 when it is not there.
  scheduler::WaitQueue::Ticket ticket = 0;
  // The policy of LeaseRequest.placement_policy.
  std::string policy;
  // As LeaseRequest.numerics and LeaseRequest.recovers.
  std::string numerics;
  bool recovers = false;
  // The last placement decision.
  KeptDecision decision;
  // Monotonic time of the request.
  absl::Duration asked;
  // The worker where memory is being freed for this request, and the sessions
  // there that lose their leases for it; empty if none.
  struct Room {
    std::string worker_id;
    std::vector<std::string> session_ids;
  };
  Room room;
  // A text that says when quota may be taken back for the request; empty unless
  // that was put off.
  std::string put_off;
  // Earliest monotonic time of the next search for memory or quota to take
  // back.
  absl::Duration next_reclaim = -absl::InfiniteDuration();
};

// A lease that ended without its client's doing.
struct LostLease {
  std::string lease_id;
  std::string worker_id;
  // Like LeaseEnded.reason.
  std::string reason;
  // The tenant for which its quota was taken back; empty if none.
  std::string for_tenant;
  // Device time that the lease had used.
  absl::Duration lost;
  // Monotonic time.
  absl::Duration ended;
};

// Returns whether no worker was searched because other requests come first.
inline bool WaitsInLine(const PendingLease& pending) {
  return ErrorReason(pending.obstacle) == "WAITS_IN_LINE";
}

// A virtual device's migration to another worker.
struct Migration {
  uint32_t virtual_device = 0;
  std::string from_worker_id;
  std::string to_worker_id;
  // The id of the lease at the new worker.
  std::string lease_id;
  // Like MigrationInfo.reason; lives for ever.
  const char* reason = "";
  v1::MigrationInfo::State state = v1::MigrationInfo::OFFERED;
  absl::Status failure;
  v1::MigrationOutcome outcome;
  // The costs of going and staying; set if the coordinator decided by them.
  std::optional<scheduler::MigrationTerms> terms;
  // Monotonic time.
  absl::Duration decided;
};

// A recovery of a virtual device that the client reported.
struct Recovery {
  v1::RecoveryReport report;
  // Monotonic time of the report.
  absl::Duration time;
};

// The session's stream, and what is to be sent on it.
struct SessionLink {
  // The stream's number; 0 when there is none.
  uint64_t number = 0;
  std::shared_ptr<Waker> waker;
  // True when SessionOpened was sent on this stream.
  bool greeted = false;
  // Messages that follow SessionOpened. At most a few per virtual device,
  // because a device has one request or one lease at a time.
  std::deque<v1::SessionResponse> outbox;
};

// The session's virtual devices: their requests, leases and losses.
struct SessionDevices {
  // Incremented when a virtual device gets another lease than before.
  uint64_t epoch = 1;
  std::map<MemberId, PendingLease> pending;
  // The last lease that each member lost, unless it returned a later one.
  std::map<MemberId, LostLease> lost;
  // Members that lost their leases to other tenants or to a drained queue,
  // until they have another lease. They come first in the wait queue, within
  // their tenant and class. `returns` counts how often the session got that
  // precedence.
  std::set<MemberId> returning;
  int returns = 0;
  // Migrations under way and some that have ended, the newest last.
  std::deque<Migration> migrations;
  // The last few recoveries, the newest last.
  std::deque<Recovery> recoveries;
  // Virtual devices that ever had a lease.
  std::set<uint32_t> bound;
  // The last few leases that the client returned, the newest last. A worker may
  // report them until it has learned of the end.
  std::deque<std::string> returned;
  // True when the saved leases of the session are all that it has, because the
  // coordinator never learned of the session from a client or a worker alone.
  bool all_leases_known = false;
  // The state that an earlier process saved last, if all_leases_known is true.
  struct Kept {
    uint64_t epoch = 0;
    // Like `bound`.
    std::set<uint32_t> devices;
  };
  std::optional<Kept> kept;
};

// Limits how often the session may make the coordinator work or log.
struct SessionPace {
  // Stage plans. Each takes up to some ten milliseconds of the thread that
  // handles all graphs.
  TokenBucket stage_questions{8, 4};
  // Revisions of all its leases because its priority has changed.
  TokenBucket urgencies{8, 4};
  // Logged refusals of leases, and how many refusals were not logged since.
  TokenBucket logged_refusals{8, 1};
  uint64_t unlogged_refusals = 0;
  // Logged events of its streams and leases, and how many were not logged
  // since. The burst has room for the first lease of each virtual device.
  TokenBucket logged_events{256, 4};
  uint64_t unlogged_events = 0;
  // Reports of recoveries and checkpoints that count.
  TokenBucket reports{64, 4};
};

// The plans by which the work of virtual devices is shared out.
struct SessionPlans {
  // The last few stage plans of each virtual device, one for each graph, the
  // newest last.
  std::map<uint32_t, std::deque<v1::StagePlan>> stages;
  // The last answer about a batch of each virtual device.
  std::map<uint32_t, v1::StageAnswer> batches;
};

// The work of the graphs that the session defined.
struct SessionWork {
  // The sum of the work of the graphs that are understood, null before the
  // first, and their number.
  SharedWork sum;
  size_t count = 0;
  // The phase of the last graph that had one, and its work; null before the
  // first.
  semantics::Phase phase = semantics::Phase::kUnspecified;
  SharedWork phase_work;
  // The graphs by GraphKey(), up to a limit.
  absl::flat_hash_set<uint64_t> graphs;
};

struct Session {
  using Kept = SessionDevices::Kept;

  // Returns whether another line about the session may be logged.
  bool MayLog(absl::Duration now);

  std::string id;
  // The session's key in the order in which sessions came; set by
  // SessionTable::Add().
  std::string place;
  std::string tenant;
  std::string program;
  v1::SessionInfo::State state = v1::SessionInfo::ATTACHED;
  absl::Time open_time;
  // The priority that the session asked for; its tenant may allow less.
  v1::Urgency urgency;
  // True when the session's workers have yet to be told of `urgency`.
  bool urgency_untold = false;
  // Monotonic time at which the session times out. Meaningless while ATTACHED.
  absl::Duration deadline;
  // If not OK, the session has ended, and its stream has yet to end with this
  // status.
  absl::Status end;
  // Like OpenSession.placement_policy.
  std::string policy;
  // True when the session began with an earlier process; this one may not know
  // all of it.
  bool began_earlier = false;

  SessionLink link;
  SessionDevices devices;
  SessionPace pace;
  SessionPlans plans;
  SessionWork work;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SESSION_H_
