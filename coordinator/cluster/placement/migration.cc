#include "coordinator/cluster/placement/migration.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/types.pb.h"
#include "scheduler/placement/filters.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/migration.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/terms.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::migration {
namespace {

// Most ended migrations that are kept of a session, besides those under way. If
// all of a client's virtual devices migrated at once, as many outcomes may
// arrive after the migrations have ended, or after a restart before the workers
// report the leases.
constexpr size_t kMaxEndedMigrations = kMaxVirtualDevices;
// Time after which a client that has not said how the migration ended counts as
// having failed.
constexpr absl::Duration kMaxUnderWay = absl::Minutes(30);

// Time after which a client is asked again about a migration that an earlier
// process decided: it may not have been asked. Until then it may say how the
// migration ended.
constexpr absl::Duration kAskAgainAfter = absl::Seconds(2);

// Bytes that are kept of a client's reason and message for staying.
constexpr size_t kMaxReason = 64;
constexpr size_t kMaxFailure = 500;

// Returns the first bytes of the text, cut between characters.
std::string Beginning(const std::string& text, size_t most) {
  size_t size = std::min(text.size(), most);
  const auto continues = [&](size_t at) {
    return at < text.size() && (text[at] & 0xc0) == 0x80;
  };
  while (size > 0 && continues(size)) --size;
  return text.substr(0, size);
}

// KeptFailure() and KeptNumbers() return the parts of the outcome that are kept
// as long as the session lives.
absl::Status KeptFailure(const v1::ErrorDetail& failure) {
  v1::ErrorDetail code;
  code.set_code(failure.code());
  return MakeError(StatusFromDetail(code).code(),
                   Beginning(failure.reason(), kMaxReason),
                   Beginning(failure.message(), kMaxFailure));
}

v1::MigrationOutcome KeptNumbers(const v1::MigrationOutcome& outcome) {
  v1::MigrationOutcome kept;
  kept.set_storage_count(outcome.storage_count());
  kept.set_moved_bytes(outcome.moved_bytes());
  kept.set_held_bytes(outcome.held_bytes());
  *kept.mutable_paused() = ToProtoDuration(FromProtoDuration(outcome.paused()));
  return kept;
}

absl::Status Precondition(absl::string_view reason, absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, why);
}

bool HasEnded(const Migration& migration) {
  return migration.state == v1::MigrationInfo::DONE ||
         migration.state == v1::MigrationInfo::FAILED;
}

// Adds a record of a migration. If too many are kept, drops the oldest that has
// ended; those under way have yet to be counted.
Migration& AddMigration(Session* session) {
  std::deque<Migration>& kept = session->devices.migrations;
  if (absl::c_count_if(kept, HasEnded) >=
      static_cast<ptrdiff_t>(kMaxEndedMigrations)) {
    kept.erase(absl::c_find_if(kept, HasEnded));
  }
  return kept.emplace_back();
}

// Returns the bytes and contents that the virtual device holds, by its worker's
// report.
PendingLease StateOf(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  PendingLease carried;
  const Worker::Held* const held = state.HeldFor(lease);
  if (held == nullptr) return carried;
  carried.asked_bytes = held->storage_bytes;
  // The worker does not say which contents the device shares. Assumes the
  // largest ones that fit.
  const std::vector<ContentKey>& keys =
      state.workers.Find(lease.worker_id)->ContentsBySize(lease.tenant);
  uint64_t left = held->use.contents().size_bytes();
  for (auto key = keys.begin(); carried.contents.size() < kMaxContentHints;
       ++key) {
    key = std::partition_point(key, keys.end(), [left](const ContentKey& one) {
      return one.second > left;
    });
    if (key == keys.end()) break;
    left -= key->second;
    carried.contents.insert(*key);
  }
  return carried;
}

// Decides to which worker the virtual device would migrate. Sets `terms` to the
// costs of going and of staying, if the present worker is in the fleet. Returns
// the decision's obstacle if there is no such worker.
absl::StatusOr<KeptDecision> Place(ClusterState& state, const Lease& from,
                                   const std::string& to_worker,
                                   const Session& session, const Tenant* tenant,
                                   scheduler::MigrationTerms* terms)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const SharedWork work = session.work.phase_work != nullptr
                              ? session.work.phase_work
                              : state.WorkOf(session);
  const PendingLease carried = StateOf(state, from);
  scheduler::Request request =
      placement::RequestFor(state, session, carried, tenant, work);
  // All of the state moves, also what exceeds a limit that was lowered.
  request.asked_bytes = carried.asked_bytes;
  // An operator's choice of worker has precedence over requests that wait.
  if (!to_worker.empty()) request.kept_for_others.clear();
  const auto busy = std::move(request.barred);
  request.barred = [&, busy](const std::string& worker_id) -> std::string {
    if (worker_id == from.worker_id) return "is where it is";
    if (!to_worker.empty() && worker_id != to_worker) return "was not named";
    return busy(worker_id);
  };
  // The new worker fetches the state from the present one.
  request.measured_link =
      [&](const std::string& worker_id)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) -> double {
    const Worker* const worker = state.workers.Find(worker_id);
    if (worker == nullptr) return 0;
    const auto link = worker->facts.links.find(from.worker_id);
    return link == worker->facts.links.end()
               ? 0
               : static_cast<double>(link->second);
  };
  const placement::PolicyChoice choice =
      placement::PolicyFor(state.config, "", session.policy, tenant);
  KeptDecision kept = placement::Decide(state, request, choice);
  DJINN_RETURN_IF_ERROR(kept.decision->obstacle);
  if (const scheduler::Fleet::Member* const here =
          state.known.fleet.Find(from.worker_id)) {
    // Leaves out the load of the session itself, because its queue moves with
    // it.
    scheduler::WorkerFacts facts = here->facts;
    facts.leases -= std::min(facts.leases, 1u);
    if (const Worker::Held* const held = state.HeldFor(from);
        held != nullptr && facts.queued_runs > 0) {
      const uint32_t own = std::min(facts.queued_runs, held->use.queued_runs());
      facts.queued_seconds *= 1.0 - 1.0 * own / facts.queued_runs;
    }
    request.barred = nullptr;
    request.kept_for_others.clear();
    const scheduler::Terms stay = scheduler::ComputeTerms(
        request, facts, request.asked_bytes, state.known.works.factors());
    *terms = scheduler::WeighMigration(
        stay, !scheduler::Filter(request, facts, stay).has_value(),
        kept.decision->considered.front().terms);
  }
  return kept;
}

// Makes `to` the lease that the virtual device uses, and withdraws `from`,
// which is null if its worker has not reported it.
void Settle(ClusterState& state, Lease* to, Lease* from, Session* session,
            Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  to->migrates_from.clear();
  notifications::SignAgain(state, to, wakes);
  log::Info("migration done", {{"session", log::ShortId(session->id)},
                               {"device", to->device.virtual_device},
                               {"to", to->worker_id},
                               {"lease", to->id}});
  if (from == nullptr) {
    const auto tenant = state.tenants->Find(to->tenant);
    if (tenant != nullptr && to->quota == scheduler::Amounts()) {
      // The lease that the virtual device left is unknown, so it held no quota
      // to take over.
      to->quota = LeaseQuota(*tenant);
      state.quotas.tree.Take(to->tenant, to->quota);
    }
    return;
  }
  // The new lease takes the old one's quota.
  std::swap(to->quota, from->quota);
  leases::Withdraw(state, *from, wakes);
}

}  // namespace

absl::StatusOr<Migration*> Start(ClusterState& state, Lease* from,
                                 const std::string& to_worker,
                                 const char* reason, Wakes* wakes,
                                 bool if_it_pays) {
  Session* const session = state.sessions.Find(from->session_id);
  if (session->state != v1::SessionInfo::ATTACHED) {
    return Precondition("SESSION_DETACHED", "the session's client is away");
  }
  if (from->state != Lease::State::kGranted) {
    return Precondition("NO_LEASE", "the virtual device has no worker yet");
  }
  if (state.leases.Spans(session->id, from->device.virtual_device)) {
    return Precondition("SPANS_WORKERS", "the virtual device spans workers");
  }
  if (state.leases.FindMigration(*from) != nullptr) {
    return Precondition("ALREADY_MIGRATING",
                        "the virtual device is on its way to another worker");
  }
  if (from->worker_id == to_worker) {
    return Precondition("ALREADY_THERE",
                        "the virtual device is at worker " + to_worker);
  }
  const std::shared_ptr<const Tenant> tenant =
      state.tenants->Find(session->tenant);
  scheduler::MigrationTerms terms;
  DJINN_ASSIGN_OR_RETURN(
      KeptDecision placed,
      Place(state, *from, to_worker, *session, tenant.get(), &terms));
  if (if_it_pays && !terms.pays) {
    return Precondition("DOES_NOT_PAY",
                        "migrating would take longer than staying");
  }
  const scheduler::Decision& decision = *placed.decision;
  Worker* const worker = state.workers.Find(decision.worker_id);
  Lease lease =
      leases::Make(state, *worker, from->device, tenant.get(), session);
  lease.migrates_from = from->id;
  lease.placement_reason = decision.reason;
  lease.promised_bytes = decision.considered.front().terms.missing_bytes;
  lease.decision = std::move(placed);
  log::Info("migration decided", {{"session", log::ShortId(session->id)},
                                  {"device", from->device.virtual_device},
                                  {"from", from->worker_id},
                                  {"to", worker->id},
                                  {"lease", lease.id},
                                  {"reason", reason}});
  const Lease* const to = leases::Offer(state, std::move(lease), worker, wakes);
  Migration& migration = AddMigration(session);
  migration.virtual_device = from->device.virtual_device;
  migration.from_worker_id = from->worker_id;
  migration.to_worker_id = to->worker_id;
  migration.lease_id = to->id;
  migration.reason = reason;
  if (if_it_pays) migration.terms = terms;
  migration.decided = state.clock->Monotonic();
  return &migration;
}

void AskClient(ClusterState& state, Lease* to, Wakes* wakes) {
  Session* const session = state.sessions.Find(to->session_id);
  if (session->state != v1::SessionInfo::ATTACHED) {
    return leases::DropMigration(
        state, to,
        Precondition("SESSION_DETACHED", "the session's client is away"),
        wakes);
  }
  to->state = Lease::State::kGranted;
  v1::SessionResponse response;
  response.mutable_migrate()->set_from_lease_id(to->migrates_from);
  *response.mutable_migrate()->mutable_to() =
      leases::GrantOf(*state.workers.Find(to->worker_id), *to);
  notifications::Send(std::move(response), session, wakes);
  for (Migration& migration : session->devices.migrations) {
    if (migration.lease_id == to->id) {
      migration.state = v1::MigrationInfo::UNDER_WAY;
    }
  }
}

absl::Status CheckOutcome(const v1::MigrationOutcome& outcome) {
  for (const std::string& lease_id :
       {outcome.from_lease_id(), outcome.to_lease_id()}) {
    if (lease_id.size() <= kMaxLeaseId) continue;
    return Violation(
        absl::StrCat("a lease's id of ", lease_id.size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status NoteOutcome(ClusterState& state, const StreamId& id,
                         const v1::MigrationOutcome& outcome) {
  DJINN_RETURN_IF_ERROR(CheckOutcome(outcome));
  Wakes wakes;
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  const auto own = [&](const std::string& lease_id)
                       ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) -> Lease* {
    Lease* const lease = state.leases.Find(lease_id);
    return lease != nullptr && lease->session_id == session->id ? lease
                                                                : nullptr;
  };
  Lease* from = own(outcome.from_lease_id());
  // A device cannot come from a lease that it only migrates to.
  if (from != nullptr && from->migrating()) from = nullptr;
  Lease* const to = own(outcome.to_lease_id());
  const bool expected =
      to != nullptr && to->migrates_from == outcome.from_lease_id();
  const bool known = std::any_of(
      session->devices.migrations.begin(), session->devices.migrations.end(),
      [&](const Migration& migration) {
        return migration.lease_id == outcome.to_lease_id();
      });
  if (to == nullptr && !known) {
    // An earlier process decided this migration. The worker has yet to report
    // the lease; adoption then finds here how the migration ended.
    Migration& early = AddMigration(session);
    early.from_worker_id = from == nullptr ? "-" : from->worker_id;
    early.to_worker_id.assign(1, '-');
    early.lease_id = outcome.to_lease_id();
    early.reason = "unknown";
    early.state = outcome.has_failure() ? v1::MigrationInfo::FAILED
                                        : v1::MigrationInfo::DONE;
    if (outcome.has_failure()) {
      early.failure = KeptFailure(outcome.failure());
    }
    early.outcome = KeptNumbers(outcome);
    early.decided = state.clock->Monotonic();
    if (outcome.has_failure() || from == nullptr) return absl::OkStatus();
    leases::Withdraw(state, *from, &wakes);
    return absl::OkStatus();
  }
  if (outcome.has_failure()) {
    if (!expected) return absl::OkStatus();
    if (from != nullptr) {
      from->stays_until = state.clock->Monotonic() + kRetryTime;
    }
    // The client has given the new lease up, so it need not be told that it
    // ends.
    to->state = Lease::State::kOffered;
    leases::DropMigration(state, to, KeptFailure(outcome.failure()), &wakes);
  } else if (expected) {
    leases::EndMigrationRecord(to->id, KeptNumbers(outcome), absl::OkStatus(),
                               session, &state.metrics);
    Settle(state, to, from, session, &wakes);
  } else if (to == nullptr && from != nullptr) {
    // The lease that the virtual device uses now has ended meanwhile.
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(outcome.to_lease_id());
    response.mutable_ended()->set_reason("WORKER_LOST");
    notifications::Send(std::move(response), session, &wakes);
    leases::Withdraw(state, *from, &wakes);
  }
  return absl::OkStatus();
}

namespace {

// Asks clients about migrations that an earlier process decided. A client that
// was asked already goes on with the migration.
void AskAgain(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const auto& [id, lease] : state.leases.all()) {
    if (!lease->migrating() || !lease->adopted ||
        now - lease->created < kAskAgainAfter) {
      continue;
    }
    const Lease* const from = state.leases.Find(lease->migrates_from);
    const Worker* const worker = state.workers.Find(lease->worker_id);
    Session* const session = state.sessions.Find(lease->session_id);
    if (from == nullptr || worker == nullptr || !worker->usable() ||
        session->state != v1::SessionInfo::ATTACHED ||
        absl::c_any_of(session->devices.migrations,
                       [&lease_id = id](const Migration& migration) {
                         return migration.lease_id == lease_id;
                       })) {
      continue;
    }
    Migration& migration = AddMigration(session);
    migration.virtual_device = lease->device.virtual_device;
    migration.from_worker_id = from->worker_id;
    migration.to_worker_id = lease->worker_id;
    migration.lease_id = id;
    migration.reason = "unknown";
    migration.decided = now;
    AskClient(state, state.leases.Find(id), wakes);
  }
}

}  // namespace

void Expire(ClusterState& state, absl::Duration now, Wakes* wakes) {
  AskAgain(state, now, wakes);
  std::vector<std::pair<std::string, absl::Status>> expired;
  for (const auto& [id, lease] : state.leases.all()) {
    if (!lease->migrating()) continue;
    const absl::Duration age = now - lease->created;
    if (lease->state == Lease::State::kOffered &&
        age >= state.config.lease_request_timeout) {
      expired.emplace_back(
          id, MakeError(absl::StatusCode::kUnavailable, "WORKER_UNRESPONSIVE",
                        "worker " + lease->worker_id +
                            " did not acknowledge the lease in time"));
    } else if (age >= kMaxUnderWay) {
      expired.emplace_back(
          id,
          MakeError(absl::StatusCode::kDeadlineExceeded, "CLIENT_UNRESPONSIVE",
                    "the client did not say how it ended"));
    }
  }
  for (const auto& [id, why] : expired) {
    leases::DropMigration(state, state.leases.Find(id), why, wakes);
  }
}

}  // namespace djinn::coordinator::migration
