// What the cluster knows of one session, in parts by concern.
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
#include "djinn/v1/session.pb.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/migration.h"

namespace djinn::coordinator {

// A lease that was asked for and not granted yet.
struct PendingLease {
  // The contents that will be uploaded, each once; the room that is needed
  // besides; and the sum of both, as the client says: a lease may hold less.
  absl::flat_hash_set<ContentKey> contents;
  uint64_t needed_bytes = 0;
  uint64_t asked_bytes = 0;
  // Monotonic.
  absl::Duration deadline;
  // The offered lease; empty while no worker was found.
  std::string lease_id;
  // Why no worker was found the last time.
  absl::Status obstacle;
  // In the wait queue; 0: it is not there.
  scheduler::WaitQueue::Ticket ticket = 0;
  // The policy of LeaseRequest.placement_policy.
  std::string policy;
  // The last one.
  KeptDecision decision;
  // Monotonic.
  absl::Duration asked;
  // The sessions from which the tenant's quota was taken back to have room at
  // the worker; empty: none.
  struct Room {
    std::string worker_id;
    std::vector<std::string> session_ids;
  };
  Room room;
  // When quota may be taken back for it, if that waits for time.
  std::string put_off;
  // Monotonic: room to take back, and quota that was put off, are not searched
  // before.
  absl::Duration next_reclaim = -absl::InfiniteDuration();
};

// A lease that ended without its client's doing.
struct LostLease {
  std::string lease_id;
  std::string worker_id;
  // As LeaseEnded.reason.
  std::string reason;
  // The tenant that took back its quota; empty: none.
  std::string for_tenant;
  // Device time that it had used.
  absl::Duration lost;
  // Monotonic.
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
  // Of the lease there.
  std::string lease_id;
  // As MigrationInfo.reason; lives for ever.
  const char* reason = "";
  v1::MigrationInfo::State state = v1::MigrationInfo::OFFERED;
  absl::Status failure;
  v1::MigrationOutcome outcome;
  // Where the coordinator wanted it by itself.
  std::optional<scheduler::MigrationTerms> terms;
  // Monotonic.
  absl::Duration decided;
};

// The session's stream, and what is to be sent on it.
struct SessionLink {
  // 0 when there is no stream.
  uint64_t number = 0;
  std::shared_ptr<Waker> waker;
  // SessionOpened was sent on this stream.
  bool greeted = false;
  // Follows it. At most a few messages per virtual device: a device has one
  // request or one lease at a time.
  std::deque<v1::SessionResponse> outbox;
};

// The session's virtual devices: what they asked for, got and lost.
struct SessionDevices {
  // Grows when a virtual device gets another lease than before.
  uint64_t epoch = 1;
  std::map<MemberId, PendingLease> pending;
  // The last one of each member, unless a later lease was given back.
  std::map<MemberId, LostLease> lost;
  // Members whose leases were taken back, until they have another one: they
  // come first in the wait queue, within their tenant and class. And how often
  // that was granted.
  std::set<MemberId> returning;
  int returns = 0;
  // The newest last: those under way, and some that ended.
  std::deque<Migration> migrations;
  // Virtual devices that ever had a lease.
  std::set<uint32_t> bound;
  // Leases that the client gave back, the newest last, a few of them: a worker
  // may report them until it has heard of it.
  std::deque<std::string> returned;
  // Workers that the client could not reach, and until when, monotonic, others
  // are preferred.
  std::map<std::string, absl::Duration> unreached;
  // The saved leases of the session are all that it has: no coordinator learned
  // of it from a client or a worker alone.
  bool all_leases_known = false;
  // What an earlier process saved last, if all_leases_known holds.
  struct Kept {
    uint64_t epoch = 0;
    // As `bound`.
    std::set<uint32_t> devices;
  };
  std::optional<Kept> kept;
};

// Limits how often the session may make the coordinator work or log.
struct SessionPace {
  // Stage plans: one takes up to some ten milliseconds of the thread that
  // handles all graphs.
  TokenBucket stage_questions{8, 4};
  // Issues of all its leases for another priority.
  TokenBucket urgencies{8, 4};
  // Logged refusals of leases, and how many were not logged since.
  TokenBucket logged_refusals{8, 1};
  uint64_t unlogged_refusals = 0;
  // Logged lines about its streams and leases, likewise. The first lease of
  // each virtual device has room.
  TokenBucket logged_events{256, 4};
  uint64_t unlogged_events = 0;
};

// How the work of virtual devices was cut.
struct SessionPlans {
  // Stages, the newest last, one for each graph, a few of them, with the parts
  // of a batch last.
  std::map<uint32_t, std::deque<v1::StagePlan>> stages;
  // The last answer about captured graphs of each device.
  std::map<uint32_t, v1::StageAnswer> batches;
};

// The work of the graphs that the session defined.
struct SessionWork {
  // Sum of those that are understood, null before the first, and their count.
  SharedWork sum;
  size_t count = 0;
  // Of the last graph that had a phase; null before.
  semantics::Phase phase = semantics::Phase::kUnspecified;
  SharedWork phase_work;
  // By GraphKey(); as many as are counted.
  absl::flat_hash_set<uint64_t> graphs;
};

struct Session {
  using Kept = SessionDevices::Kept;

  // Returns whether another line about the session may be logged.
  bool MayLog(absl::Duration now);

  std::string id;
  // Its position among all sessions, in the order in which they came: set by
  // Add().
  std::string place;
  std::string tenant;
  std::string program;
  v1::SessionInfo::State state = v1::SessionInfo::ATTACHED;
  absl::Time open_time;
  // As it asked; its tenant may allow less.
  v1::Urgency urgency;
  // Its workers have yet to be told of the last one.
  bool urgency_untold = false;
  // When it times out, monotonic. Meaningful unless ATTACHED.
  absl::Duration deadline;
  // Not OK: it has ended, and its stream is still to be told this.
  absl::Status end;
  // As OpenSession.placement_policy.
  std::string policy;
  // It began with an earlier process: this one may not know all of it.
  bool began_earlier = false;

  SessionLink link;
  SessionDevices devices;
  SessionPace pace;
  SessionPlans plans;
  SessionWork work;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SESSION_H_
