// Virtual devices that go on at other workers.
//
// The lease there is offered beside the one in use, and names it: both are in
// force until the client has said which of them it uses. Only the client knows,
// so that neither a restart nor a lost message here can take away what it has.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"
#include "coordinator/violation.h"
#include "scheduler/placement/filters.h"

namespace djinn::coordinator {
namespace {

// Kept of each session besides those under way: of a client whose virtual
// devices all went at once, as many outcomes may come when the ways have ended,
// and after a restart before their workers tell of the leases.
constexpr size_t kMaxEndedMigrations = Cluster::kMaxVirtualDevices;
// A client that has not said how it ended by then has lost it.
constexpr absl::Duration kMaxUnderWay = absl::Minutes(30);
// Of one worker that drains, at a time: its link serves all of them.
constexpr size_t kMaxFromOneWorker = 8;
// How often better places are looked for, for how many leases; and how long one
// stays at least.
constexpr absl::Duration kRebalanceInterval = absl::Seconds(5);
constexpr size_t kMaxRebalanced = 16;
constexpr absl::Duration kSettleTime = absl::Minutes(1);
// Before a lease that could not go is asked again.
constexpr absl::Duration kRetryDrain = absl::Seconds(2);

// Of what a client says why it stays.
constexpr size_t kMaxReason = 64;
constexpr size_t kMaxFailure = 500;

// Its first bytes, no character in part.
std::string Beginning(const std::string& text, size_t most) {
  size_t size = std::min(text.size(), most);
  const auto continues = [&](size_t at) {
    return at < text.size() && (text[at] & 0xc0) == 0x80;
  };
  while (size > 0 && continues(size)) --size;
  return text.substr(0, size);
}

// What of it is kept, for as long as the session lives.
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

// The oldest that ended make room: those under way have yet to be counted.
Migration& AddMigration(Session* session) {
  std::deque<Migration>& kept = session->migrations;
  if (absl::c_count_if(kept, HasEnded) >=
      static_cast<ptrdiff_t>(kMaxEndedMigrations)) {
    kept.erase(absl::c_find_if(kept, HasEnded));
  }
  return kept.emplace_back();
}

}  // namespace

PendingLease Cluster::StateOf(const Lease& lease) {
  PendingLease state;
  const Worker::Held* const held = HeldFor(lease);
  if (held == nullptr) return state;
  state.asked_bytes = held->storage_bytes;
  // Which of its tenant's contents it shares the worker does not say: the
  // largest that may be.
  const std::vector<ContentKey>& keys =
      workers_.Find(lease.worker_id)->ContentsBySize(lease.tenant);
  uint64_t left = held->use.contents().size_bytes();
  for (auto key = keys.begin(); state.contents.size() < kMaxContentHints;
       ++key) {
    key = std::partition_point(key, keys.end(), [left](const ContentKey& one) {
      return one.second > left;
    });
    if (key == keys.end()) break;
    left -= key->second;
    state.contents.insert(*key);
  }
  return state;
}

absl::StatusOr<KeptDecision> Cluster::PlaceMigration(
    const Lease& from, const std::string& to_worker, const Session& session,
    const Tenant* tenant, scheduler::MigrationTerms* terms) {
  const SharedWork work =
      session.phase_work != nullptr ? session.phase_work : WorkOf(session);
  const PendingLease state = StateOf(from);
  scheduler::Request request = RequestFor(session, state, tenant, work);
  // All of it comes along, also what is above a limit that has become less.
  request.asked_bytes = state.asked_bytes;
  // An operator's wish goes before those that wait.
  if (!to_worker.empty()) request.kept_for_others.clear();
  const auto busy = std::move(request.barred);
  request.barred = [&, busy](const std::string& worker_id) -> std::string {
    if (worker_id == from.worker_id) return "is where it is";
    if (!to_worker.empty() && worker_id != to_worker) return "was not named";
    return busy(worker_id);
  };
  // The worker there fetches from the one here.
  request.measured_link = [&](const std::string& worker_id) -> double {
    const Worker* const worker = workers_.Find(worker_id);
    if (worker == nullptr) return 0;
    const auto link = worker->links.find(from.worker_id);
    return link == worker->links.end() ? 0 : static_cast<double>(link->second);
  };
  const PolicyChoice choice = PolicyFor("", session.policy, tenant);
  KeptDecision kept = Decide(request, choice);
  DJINN_RETURN_IF_ERROR(kept.decision->obstacle);
  if (const scheduler::Fleet::Member* const here =
          fleet_.Find(from.worker_id)) {
    // Without itself: what it has queued comes along.
    scheduler::WorkerFacts facts = here->facts;
    facts.leases -= std::min(facts.leases, 1u);
    if (const Worker::Held* const held = HeldFor(from);
        held != nullptr && facts.queued_runs > 0) {
      const uint32_t own = std::min(facts.queued_runs, held->use.queued_runs());
      facts.queued_seconds *= 1.0 - 1.0 * own / facts.queued_runs;
    }
    request.barred = nullptr;
    request.kept_for_others.clear();
    const scheduler::Terms stay = scheduler::ComputeTerms(
        request, facts, request.asked_bytes, works_.factors());
    *terms = scheduler::WeighMigration(
        stay, !scheduler::Filter(request, facts, stay).has_value(),
        kept.decision->considered.front().terms);
  }
  return kept;
}

absl::StatusOr<Migration*> Cluster::StartMigration(Lease* from,
                                                   const std::string& to_worker,
                                                   const char* reason,
                                                   Wakes* wakes,
                                                   bool if_it_pays) {
  Session* const session = sessions_.Find(from->session_id);
  if (session->state != v1::SessionInfo::ATTACHED) {
    return Precondition("SESSION_DETACHED", "the session's client is away");
  }
  if (from->state != Lease::State::kGranted) {
    return Precondition("NO_LEASE", "the virtual device has no worker yet");
  }
  if (Spans(*session, from->device.virtual_device)) {
    return Precondition("SPANS_WORKERS", "the virtual device spans workers");
  }
  if (leases_.FindMigration(*from) != nullptr) {
    return Precondition("ALREADY_MIGRATING",
                        "the virtual device is on its way to another worker");
  }
  if (from->worker_id == to_worker) {
    return Precondition("ALREADY_THERE",
                        "the virtual device is at worker " + to_worker);
  }
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(session->tenant);
  scheduler::MigrationTerms terms;
  DJINN_ASSIGN_OR_RETURN(
      KeptDecision placed,
      PlaceMigration(*from, to_worker, *session, tenant.get(), &terms));
  if (if_it_pays && !terms.pays) {
    return Precondition("DOES_NOT_PAY", "going would take longer than staying");
  }
  const scheduler::Decision& decision = *placed.decision;
  Worker* const worker = workers_.Find(decision.worker_id);
  Lease lease = NewLease(*worker, from->device, tenant.get(), session);
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
  const Lease* const to = AddLease(std::move(lease));
  OpenAccount(*to);
  RefreshFleet(*worker);
  Touch(worker, wakes);
  TouchPeers(*to, wakes);
  Migration& migration = AddMigration(session);
  migration.virtual_device = from->device.virtual_device;
  migration.from_worker_id = from->worker_id;
  migration.to_worker_id = to->worker_id;
  migration.lease_id = to->id;
  migration.reason = reason;
  if (if_it_pays) migration.terms = terms;
  migration.decided = clock_->Monotonic();
  return &migration;
}

void Cluster::AskToMigrate(Lease* to, Wakes* wakes) {
  Session* const session = sessions_.Find(to->session_id);
  if (session->state != v1::SessionInfo::ATTACHED) {
    return DropMigration(
        to, Precondition("SESSION_DETACHED", "the session's client is away"),
        wakes);
  }
  to->state = Lease::State::kGranted;
  v1::SessionResponse response;
  response.mutable_migrate()->set_from_lease_id(to->migrates_from);
  *response.mutable_migrate()->mutable_to() = GrantOf(*to);
  Send(std::move(response), session, wakes);
  for (Migration& migration : session->migrations) {
    if (migration.lease_id == to->id) {
      migration.state = v1::MigrationInfo::UNDER_WAY;
    }
  }
}

absl::Status Cluster::NoteMigration(const StreamId& id,
                                    const v1::MigrationOutcome& outcome) {
  for (const std::string& lease_id :
       {outcome.from_lease_id(), outcome.to_lease_id()}) {
    if (lease_id.size() <= kMaxLeaseId) continue;
    return Violation(
        absl::StrCat("a lease's id of ", lease_id.size(), " bytes"));
  }
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) return session->end;
  const auto own = [&](const std::string& lease_id) -> Lease* {
    Lease* const lease = leases_.Find(lease_id);
    return lease != nullptr && lease->session_id == session->id ? lease
                                                                : nullptr;
  };
  Lease* from = own(outcome.from_lease_id());
  // Nobody comes from where nobody is yet.
  if (from != nullptr && from->migrating()) from = nullptr;
  Lease* const to = own(outcome.to_lease_id());
  const bool expected =
      to != nullptr && to->migrates_from == outcome.from_lease_id();
  const bool known =
      std::any_of(session->migrations.begin(), session->migrations.end(),
                  [&](const Migration& migration) {
                    return migration.lease_id == outcome.to_lease_id();
                  });
  if (to == nullptr && !known) {
    // Decided by an earlier process: its worker has yet to tell of the lease,
    // and is to find here what became of it.
    Migration& early = AddMigration(session);
    early.from_worker_id = from == nullptr ? "-" : from->worker_id;
    early.to_worker_id = "-";
    early.lease_id = outcome.to_lease_id();
    early.reason = "unknown";
    early.state = outcome.has_failure() ? v1::MigrationInfo::FAILED
                                        : v1::MigrationInfo::DONE;
    if (outcome.has_failure()) {
      early.failure = KeptFailure(outcome.failure());
    }
    early.outcome = KeptNumbers(outcome);
    early.decided = clock_->Monotonic();
    if (outcome.has_failure() || from == nullptr) return absl::OkStatus();
    const std::string worker_id = from->worker_id;
    RemoveLease(from->id);
    LeaveWorker(session->id, worker_id, &wakes);
    return absl::OkStatus();
  }
  if (outcome.has_failure()) {
    if (!expected) return absl::OkStatus();
    if (from != nullptr) {
      from->stays_until = clock_->Monotonic() + kRetryDrain;
    }
    // It has given that one up: nothing to tell.
    to->state = Lease::State::kOffered;
    DropMigration(to, KeptFailure(outcome.failure()), &wakes);
  } else if (expected) {
    EndMigrationRecord(to->id, KeptNumbers(outcome), absl::OkStatus(), session);
    SettleMigration(to, from, session, &wakes);
  } else if (to == nullptr && from != nullptr) {
    // The lease that it went over to has ended meanwhile.
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(outcome.to_lease_id());
    response.mutable_ended()->set_reason("WORKER_LOST");
    Send(std::move(response), session, &wakes);
    const std::string worker_id = from->worker_id;
    RemoveLease(from->id);
    LeaveWorker(session->id, worker_id, &wakes);
  }
  return absl::OkStatus();
}

void Cluster::SettleMigration(Lease* to, Lease* from, Session* session,
                              Wakes* wakes) {
  to->migrates_from.clear();
  to->reissue_time = absl::InfinitePast();
  Touch(workers_.Find(to->worker_id), wakes);
  log::Info("migration done", {{"session", log::ShortId(session->id)},
                               {"device", to->device.virtual_device},
                               {"to", to->worker_id},
                               {"lease", to->id}});
  if (from == nullptr) {
    const auto tenant = tenants_->Find(to->tenant);
    if (tenant != nullptr && to->quota == scheduler::Amounts()) {
      // The other one was never adopted.
      to->quota = LeaseQuota(*tenant);
      quotas_.Take(to->tenant, to->quota);
    }
    return;
  }
  // One takes the other's place.
  std::swap(to->quota, from->quota);
  const std::string worker_id = from->worker_id;
  RemoveLease(from->id);
  LeaveWorker(session->id, worker_id, wakes);
}

void Cluster::DropMigration(Lease* to, const absl::Status& why, Wakes* wakes) {
  Session* const session = sessions_.Find(to->session_id);
  log::Warning("migration failed", {{"session", log::ShortId(session->id)},
                                    {"device", to->device.virtual_device},
                                    {"to", to->worker_id},
                                    {"lease", to->id},
                                    {"error", why}});
  EndMigrationRecord(to->id, {}, why, session);
  if (to->state == Lease::State::kGranted) {
    // It may be there already.
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(to->id);
    response.mutable_ended()->set_reason(ErrorReason(why));
    Send(std::move(response), session, wakes);
  }
  const std::string worker_id = to->worker_id;
  RemoveLease(to->id);
  LeaveWorker(session->id, worker_id, wakes);
}

void Cluster::EndMigrationRecord(const std::string& lease_id,
                                 v1::MigrationOutcome outcome,
                                 absl::Status failure, Session* session) {
  for (Migration& migration : session->migrations) {
    if (migration.lease_id != lease_id) continue;
    migration.state =
        failure.ok() ? v1::MigrationInfo::DONE : v1::MigrationInfo::FAILED;
    metrics_.migrations.Add(
        {migration.reason, failure.ok() ? "done" : "failed"});
    if (failure.ok()) {
      metrics_.migration_pauses.Observe(FromProtoDuration(outcome.paused()));
    }
    migration.outcome = std::move(outcome);
    migration.failure = std::move(failure);
    return;
  }
}

void Cluster::LeaveWorker(const std::string& session_id,
                          const std::string& worker_id, Wakes* wakes) {
  Worker* const worker = workers_.Find(worker_id);
  if (worker == nullptr) return;
  for (const Lease* lease : leases_.OfSession(session_id)) {
    // It is told of the lease that has ended.
    if (lease->worker_id == worker_id) return Touch(worker, wakes);
  }
  Drop(session_id, worker, wakes);
}

void Cluster::ExpireMigrations(absl::Duration now, Wakes* wakes) {
  std::vector<std::pair<std::string, absl::Status>> expired;
  for (const auto& [id, lease] : leases_.all()) {
    if (!lease->migrating()) continue;
    const absl::Duration age = now - lease->created;
    if (lease->state == Lease::State::kOffered &&
        age >= config_.lease_request_timeout) {
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
    DropMigration(leases_.Find(id), why, wakes);
  }
}

void Cluster::AdvanceDrains(absl::Duration now, Wakes* wakes) {
  for (const std::string& worker_id : draining_) {
    const std::vector<Lease*> leases = leases_.OfWorker(worker_id);
    size_t under_way = 0, stay = 0;
    absl::Status why;
    for (const Lease* lease : leases) {
      under_way += leases_.FindMigration(*lease) != nullptr;
    }
    for (Lease* lease : leases) {
      if (under_way >= kMaxFromOneWorker) break;
      if (lease->migrating() || now < lease->stays_until ||
          lease->state != Lease::State::kGranted ||
          leases_.FindMigration(*lease) != nullptr) {
        continue;
      }
      const absl::Status started =
          StartMigration(lease, "", "drain", wakes).status();
      under_way += started.ok();
      if (started.ok()) continue;
      lease->stays_until = now + kRetryDrain;
      ++stay;
      why.Update(started);
    }
    Worker* const worker = workers_.Find(worker_id);
    if (stay == 0 || worker == nullptr || !worker->logged_drains.Take(now)) {
      continue;
    }
    log::Info("leases cannot leave the worker that drains",
              {{"worker", worker_id}, {"leases", stay}, {"first_error", why}});
  }
}

void Cluster::NotePhase(const SharedWork& work, Session* session,
                        Wakes* wakes) {
  const semantics::Phase phase = work->phase();
  // What most programs do between two phases.
  if (phase == semantics::Phase::kUnspecified ||
      phase == semantics::Phase::kForward || phase == session->phase) {
    return;
  }
  session->phase = phase;
  session->phase_work = work;
  if (!config_.automatic_migration) return;
  for (Lease* lease : leases_.OfSession(session->id)) {
    if (lease->migrating()) continue;
    StartMigration(lease, "", "phase", wakes, /*if_it_pays=*/true)
        .status()
        .IgnoreError();
  }
}

void Cluster::Rebalance(absl::Duration now, Wakes* wakes) {
  if (!config_.automatic_migration || now < next_rebalance_) return;
  next_rebalance_ = now + kRebalanceInterval;
  // One at a time: what it changes shows in the workers' reports.
  std::vector<Lease*> turn;
  for (const auto& [id, lease] : leases_.all()) {
    if (id > last_rebalanced_) turn.push_back(lease.get());
  }
  if (turn.empty()) last_rebalanced_.clear();
  if (turn.size() > kMaxRebalanced) turn.resize(kMaxRebalanced);
  for (Lease* lease : turn) {
    last_rebalanced_ = lease->id;
    if (lease->migrating() || lease->state != Lease::State::kGranted ||
        now < lease->created + kSettleTime || now < lease->stays_until) {
      continue;
    }
    if (StartMigration(lease, "", "policy", wakes, /*if_it_pays=*/true).ok()) {
      return;
    }
  }
}

absl::StatusOr<v1::MigrateSessionResponse> Cluster::MigrateSession(
    const v1::MigrateSessionRequest& request) {
  Wakes wakes;
  MutexLock lock(&mu_);
  const Session* const found = FindForOperator(request.session_id());
  if (found == nullptr) return SessionUnknown(request.session_id());
  const std::string& to = request.to_worker_id();
  if (!to.empty() && workers_.Find(to) == nullptr) {
    return MakeError(absl::StatusCode::kNotFound, "WORKER_UNKNOWN",
                     "there is no \"" + to + "\"");
  }
  std::vector<Lease*> leases;
  for (Lease* lease : leases_.OfSession(found->id)) {
    if (lease->migrating() ||
        (request.has_virtual_device() &&
         lease->device.virtual_device != request.virtual_device())) {
      continue;
    }
    leases.push_back(lease);
  }
  if (leases.empty()) {
    return Precondition("NO_LEASE", "no such virtual device has a worker");
  }
  std::sort(leases.begin(), leases.end(), [](const Lease* a, const Lease* b) {
    return a->device < b->device;
  });
  v1::MigrateSessionResponse response;
  absl::Status first_failure;
  std::optional<uint32_t> failed;
  for (Lease* lease : leases) {
    const uint32_t device = lease->device.virtual_device;
    // Its other members stay for the same reason.
    if (failed == device) continue;
    const absl::StatusOr<Migration*> started =
        StartMigration(lease, to, "operator", &wakes);
    if (started.ok()) {
      Describe(**started, response.add_migrations());
      continue;
    }
    failed = device;
    first_failure.Update(started.status());
    v1::MigrateSessionResponse::Failure* const failure =
        response.add_failures();
    failure->set_virtual_device(device);
    failure->set_reason(ErrorReason(started.status()));
    failure->set_message(std::string(started.status().message()));
  }
  if (response.migrations_size() == 0) return first_failure;
  return response;
}

void Cluster::Describe(const Migration& migration, v1::MigrationInfo* info) {
  info->set_virtual_device(migration.virtual_device);
  info->set_from_worker_id(migration.from_worker_id);
  info->set_to_worker_id(migration.to_worker_id);
  info->set_reason(migration.reason);
  info->set_state(migration.state);
  *info->mutable_age() =
      ToProtoDuration(clock_->Monotonic() - migration.decided);
  if (migration.terms.has_value()) {
    v1::MigrationTerms* const terms = info->mutable_terms();
    terms->set_stay_seconds(migration.terms->stay_seconds);
    terms->set_go_seconds(migration.terms->go_seconds);
    terms->set_state_bytes(migration.terms->state_bytes);
    terms->set_transfer_seconds(migration.terms->transfer_seconds);
  }
  if (migration.state == v1::MigrationInfo::FAILED) {
    info->set_failure_reason(ErrorReason(migration.failure));
    info->set_failure(std::string(migration.failure.message()));
  }
  if (migration.state != v1::MigrationInfo::DONE) return;
  info->set_storage_count(migration.outcome.storage_count());
  info->set_moved_bytes(migration.outcome.moved_bytes());
  info->set_held_bytes(migration.outcome.held_bytes());
  *info->mutable_paused() = migration.outcome.paused();
}

}  // namespace djinn::coordinator
