// The sessions that exist.
//
// A session is ATTACHED while its stream is open, DETACHED after that until it
// attaches again or times out, and ADOPTED when only a worker told of it. It
// ends when it is removed; if it ever had a lease, its id is kept for a while.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_SESSION_TABLE_H_
#define COORDINATOR_SESSION_TABLE_H_

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
#include "common/error.h"
#include "coordinator/kept_decision.h"
#include "coordinator/lease_table.h"
#include "coordinator/token_bucket.h"
#include "coordinator/waker.h"
#include "coordinator/work_table.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/batch.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/session.pb.h"
#include "scheduler/fairness/waiting_line.h"
#include "scheduler/placement/migration.h"

namespace djinn::coordinator {

// A lease asked for and not granted yet.
struct PendingLease {
  // What will be uploaded, each content once; the room that is needed besides;
  // and all of it together, as the client says: a lease may hold less.
  absl::flat_hash_set<ContentKey> contents;
  uint64_t needed_bytes = 0;
  uint64_t asked_bytes = 0;
  // Monotonic.
  absl::Duration deadline;
  // The offered lease; empty while no worker was found.
  std::string lease_id;
  // Why no worker was found the last time.
  absl::Status obstacle;
  // In the waiting line; 0: it is not there.
  scheduler::WaitingLine::Ticket ticket = 0;
  // As LeaseRequest.placement_policy.
  std::string policy;
  // The last one.
  KeptDecision decision;
  // Monotonic.
  absl::Duration asked;
  // Whom the tenant's quota was taken back from to have room there; empty while
  // nobody was.
  struct Room {
    std::string worker_id;
    std::vector<std::string> session_ids;
  };
  Room room;
  // When what could be taken back for it may be, if that waits for time.
  std::string put_off;
  // Monotonic: who has such room, or has to give back quota that was put off,
  // is not looked for before.
  absl::Duration next_reclaim = -absl::InfiniteDuration();
};

// A lease that ended without its client's doing.
struct LostLease {
  std::string lease_id;
  std::string worker_id;
  // As LeaseEnded.reason.
  std::string reason;
  // Who took back its own; empty unless somebody did.
  std::string for_tenant;
  // Device time that it had used.
  absl::Duration lost;
  // Monotonic.
  absl::Duration ended;
};

// No worker was looked for: others waited for what there is.
inline bool WaitsInLine(const PendingLease& pending) {
  return ErrorReason(pending.obstacle) == "WAITS_IN_LINE";
}

// A virtual device's way to another worker.
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

struct Session {
  std::string id;
  // Where it stands among all sessions, in the order they came: set by Add().
  std::string place;
  std::string tenant;
  std::string program;
  v1::SessionInfo::State state = v1::SessionInfo::ATTACHED;
  // Grows when a virtual device gets another lease than before.
  uint64_t epoch = 1;
  absl::Time open_time;
  // As it asked; its tenant may allow less.
  v1::Urgency urgency;
  // When it times out, monotonic. Meaningful unless ATTACHED.
  absl::Duration deadline;

  // The open stream's number; 0 when there is none.
  uint64_t stream = 0;
  std::shared_ptr<Waker> waker;
  // SessionOpened went out on this stream.
  bool greeted = false;
  // What follows it. At most a few per virtual device: a device has one request
  // or one lease at a time.
  std::deque<v1::SessionResponse> outbox;

  // Not OK: it has ended, and this is what its stream is still to be told.
  absl::Status end;

  std::map<MemberId, PendingLease> pending;
  // Of each member the last one, unless a later one was given back.
  std::map<MemberId, LostLease> lost_leases;
  // Members whose leases were taken back, until they have another one: they go
  // first in line, of their tenant and class. And how often that was granted.
  std::set<MemberId> returning;
  int returns = 0;
  // The newest last: those under way, and some that ended.
  std::deque<Migration> migrations;
  // Plans of stages that it may ask for: one takes up to some ten milliseconds
  // of the thread that everybody's structures go through.
  TokenBucket stage_questions{8, 4};
  // How often its leases are signed anew, and all of their workers' listed
  // again, because it has become another urgency.
  TokenBucket urgencies{8, 4};
  // Its workers have yet to be told of the last one.
  bool urgency_untold = false;
  // Refusals of leases that are logged, and how many were not since the last
  // one that was.
  TokenBucket logged_refusals{8, 1};
  uint64_t unlogged_refusals = 0;
  // The same of lines about its streams and leases, of which a client has as
  // many as it likes. Each virtual device's first lease has room.
  TokenBucket logged_events{256, 4};
  uint64_t unlogged_events = 0;
  // Whether there may be another such line.
  bool MayLog(absl::Duration now);
  // How the work of virtual devices was cut into stages, the newest last, each
  // structure's once, a few of them; and into parts of a batch last.
  std::map<uint32_t, std::deque<v1::StagePlan>> stage_plans;
  // Answers about recordings, the last of each device.
  std::map<uint32_t, v1::StageAnswer> batch_plans;
  // Virtual devices that ever had a lease.
  std::set<uint32_t> bound_devices;
  // Leases that the client gave back, the newest last, a few of them: a worker
  // may tell of them for as long as it has not heard of it.
  std::deque<std::string> returned_leases;
  // Workers that the client could not reach, and until when, monotonic, others
  // are preferred.
  std::map<std::string, absl::Duration> unreached;
  // As OpenSession.placement_policy.
  std::string policy;
  // Of the structures it defined, those that are understood; null before the
  // first, and how many they are.
  SharedWork work;
  size_t work_structures = 0;
  // With an earlier process: these are not all.
  bool began_earlier = false;
  // No coordinator knew it by the word of a client or a worker alone, so that
  // what is kept of its leases is all of them.
  bool all_leases_known = false;
  // Where they are: what an earlier process kept last.
  struct Kept {
    uint64_t epoch = 0;
    // As bound_devices.
    std::set<uint32_t> devices;
  };
  std::optional<Kept> kept;
  // Of the last structure that had one, and its work; null before.
  semantics::Phase phase = semantics::Phase::kUnspecified;
  SharedWork phase_work;
  // Of the structures it defined, by StructureKey(); as many as are counted.
  absl::flat_hash_set<uint64_t> structures;
};

class SessionTable {
 public:
  // Ids of ended sessions kept for each tenant, so that none can push out what
  // another one needs.
  static constexpr size_t kMaxEnded = 10'000;

  // The id must be new.
  Session* Add(Session session);
  void Remove(const std::string& id);
  // Whether such a session of the tenant was removed, had a lease (without one
  // there was nothing to lose) and is among its kMaxEnded newest of these.
  bool Ended(const std::string& tenant, const std::string& id) const;

  // Null when there is none. Pointers stay valid until Remove().
  Session* Find(const std::string& id);
  // The one whose id begins so; null when there is none or several.
  Session* FindByPrefix(absl::string_view prefix);
  size_t CountOfTenant(const std::string& tenant) const;
  // Monotonic: when the first of the tenant's sessions without a stream times
  // out. Infinite when all have one.
  absl::Duration NextTimeout(const std::string& tenant) const;
  // Sessions without a stream whose deadline has come.
  std::vector<Session*> TimedOut(absl::Duration now) const;
  const std::map<std::string, std::unique_ptr<Session>>& all() const {
    return sessions_;
  }
  // By place.
  const std::map<std::string, Session*>& in_order() const { return in_order_; }

 private:
  struct EndedIds {
    absl::flat_hash_set<std::string> all;
    std::deque<std::string> oldest_first;
  };

  std::map<std::string, std::unique_ptr<Session>> sessions_;
  std::map<std::string, Session*> in_order_;
  uint64_t last_place_ = 0;
  std::map<std::string, absl::flat_hash_set<const Session*>> of_tenant_;
  std::map<std::string, EndedIds> ended_of_tenant_;
};

// The first 8 bytes.
uint64_t StructureKey(absl::string_view fingerprint);

// 128 bits in lower-case hex.
bool IsSessionId(absl::string_view text);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SESSION_TABLE_H_
