// Worker streams.
#include <algorithm>
#include <set>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"
#include "coordinator/violation.h"

namespace djinn::coordinator {
namespace {

// As DesiredState.drop_lease_ids in worker_registry.proto says.
constexpr int kMaxDroppedLeases = 4096;

absl::Status DialAgain(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "STREAM_REPLACED", why);
}

}  // namespace

Worker* Cluster::FindWorker(const StreamId& id) {
  Worker* const worker = workers_.Find(id.owner);
  return worker != nullptr && worker->stream == id.stream ? worker : nullptr;
}

absl::StatusOr<StreamId> Cluster::Join(const v1::WorkerState& report,
                                       std::shared_ptr<Waker> waker) {
  DJINN_ASSIGN_OR_RETURN(
      const uint32_t version,
      NegotiateProtocol(OwnProtocolWindow(), report.protocol(), "worker"));
  Wakes wakes;
  MutexLock lock(&mu_);
  if (stopping_) {
    return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                     "the coordinator stops; dial again");
  }
  const uint64_t stream = ++last_stream_;
  DJINN_ASSIGN_OR_RETURN(
      WorkerRegistry::Joined joined,
      workers_.Join(report, stream, waker, clock_->Monotonic()));
  wakes.Add(std::move(joined.replaced));
  wakes.Add(std::move(waker));
  Worker* const worker = joined.worker;
  worker->protocol_version = version;
  log::Info(joined.restarted ? "worker restarted" : "worker joined",
            {{"worker", worker->id},
             {"address", worker->address},
             {"device", worker->device},
             {"incarnation", absl::Hex(worker->incarnation)},
             {"sessions", report.sessions_size()}});
  if (joined.restarted) {
    metrics_.recoveries.Add({"worker_restarted"});
    metrics_.worker_restarts.Observe(joined.silence);
    EndLeasesOf(worker, "WORKER_RESTARTED", &wakes);
    // What its former process measured last is lost with it.
    worker->closing.clear();
    worker->settling.clear();
    SettleWorker(worker->id);
  }
  for (Lease* lease : leases_.OfWorker(worker->id)) lease->listed_revision = 0;
  Absorb(report, worker, &wakes);
  // The first report tells of all that there is.
  awaited_.erase(worker->id);
  ForgetRestored([&](const RestoredLease& restored) {
    return restored.worker_id == worker->id;
  });
  return StreamId{worker->id, stream};
}

absl::Status Cluster::Report(const StreamId& id,
                             const v1::WorkerState& report) {
  DJINN_RETURN_IF_ERROR(WorkerRegistry::Check(report));
  Wakes wakes;
  MutexLock lock(&mu_);
  Worker* const worker = FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  if (report.worker_id() != worker->id ||
      report.incarnation() != worker->incarnation ||
      report.applied_revision() > worker->revision) {
    return Violation(
        absl::StrCat("a report of ", report.worker_id(), " with revision ",
                     report.applied_revision(), " on the stream of ",
                     worker->id, ", where the last one is ", worker->revision));
  }
  workers_.Apply(report, clock_->Monotonic(), worker);
  Absorb(report, worker, &wakes);
  return absl::OkStatus();
}

void Cluster::Absorb(const v1::WorkerState& report, Worker* worker,
                     Wakes* wakes) {
  const uint64_t applied = report.applied_revision();
  for (Lease* lease : leases_.OfWorker(worker->id)) {
    if (lease->state == Lease::State::kOffered && lease->listed_revision > 0 &&
        lease->listed_revision <= applied) {
      if (lease->migrating()) {
        AskToMigrate(lease, wakes);
      } else {
        Grant(lease, wakes);
      }
    }
  }
  std::set<std::string> passed;
  for (const v1::HeldSession& held : report.sessions()) {
    Adopt(held.lease(), worker, &passed, wakes);
  }
  // Only now is it known which of them have another lease there.
  for (const std::string& session_id : passed) {
    LeaveWorker(session_id, worker->id, wakes);
  }
  AbsorbUse(report, worker, wakes);
  // Nobody asks that any more.
  if (inquiries_.Take(worker->id, report, wakes)) Touch(worker, wakes);
  const size_t forgotten = std::erase_if(worker->drops, [&](const auto& drop) {
    const auto& [session_id, revision] = drop;
    return revision > 0 && revision <= applied &&
           std::none_of(worker->held.begin(), worker->held.end(),
                        [&](const auto& held) {
                          return held.second.session_id == session_id;
                        });
  });
  const bool improved = AbsorbState(*worker);
  AbsorbDemand(worker);
  NotePhasesToTell(worker, wakes);
  RecordJobs(*worker);
  if (improved || forgotten > 0 || untried_) RetryInTime(wakes);
}

bool Cluster::IsOfThePast(const v1::LeaseClaims& reported,
                          const Session& session) {
  const Lease* const other = leases_.FindDevice(
      session.id, {reported.virtual_device(), reported.member()});
  if (other == nullptr || other->id == reported.migrates_from()) return false;
  // One that was made here the client asked for when it had no other.
  return !other->adopted || other->epoch >= reported.session_epoch();
}

bool Cluster::HadEnded(const v1::LeaseClaims& reported,
                       const Session& session) {
  // Only the first lease of a virtual device leaves the epoch as it was. So all
  // others up to the epoch that was kept were made before, and the first one
  // was if the device was kept, too.
  return session.kept.has_value() &&
         reported.session_epoch() <= session.kept->epoch &&
         (reported.member() > 0 ||
          session.kept->devices.contains(reported.virtual_device())) &&
         !restored_.contains(reported.lease_id());
}

void Cluster::EndOlder(const Lease& newest, Wakes* wakes) {
  if (newest.migrating()) return;
  for (Lease* lease : leases_.OfSession(newest.session_id)) {
    if (!lease->adopted || lease->device != newest.device ||
        lease->epoch >= newest.epoch) {
      continue;
    }
    metrics_.recoveries.Add({"lease_superseded"});
    const std::string worker_id = lease->worker_id;
    EndLease(lease, "LEASE_SUPERSEDED", wakes);
    // The virtual device has lost nothing: it has the newest.
    if (Session* const session = sessions_.Find(newest.session_id)) {
      session->lost_leases.erase(newest.device);
    }
    LeaveWorker(newest.session_id, worker_id, wakes);
  }
}

void Cluster::Adopt(const v1::SignedLease& reported, Worker* worker,
                    std::set<std::string>* passed, Wakes* wakes) {
  v1::LeaseClaims record = UncheckedClaims(reported);
  // What has ended here it is being told of; signatures take long to check.
  if (leases_.Find(record.lease_id()) != nullptr ||
      worker->drops.contains(record.session_id()) ||
      worker->closing.contains(record.lease_id()) ||
      worker->settling.contains(record.lease_id())) {
    return;
  }
  if (const CreditLedger::Account* const account =
          ledger_.Find(record.lease_id());
      account != nullptr && account->closed &&
      account->worker_id == worker->id) {
    // An earlier process ended it.
    worker->closing.emplace(record.lease_id(), 0);
    passed->insert(record.session_id());
    return;
  }
  const absl::StatusOr<v1::LeaseClaims> claims = ReportedClaims(reported);
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning("lease not adopted: not signed for this worker",
                 {{"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"status", claims.status()}});
    return;
  }
  if (record.lease_id().empty() || !IsSessionId(record.session_id()) ||
      record.virtual_device() >= kMaxVirtualDevices ||
      record.member() >= kMaxMembers) {
    log::Warning("lease not adopted: malformed", {{"worker", worker->id}});
    return;
  }
  const MemberId device{record.virtual_device(), record.member()};
  // Whoever else of the session is there stays.
  const auto pass = [&](const Session& of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    worker->closing.emplace(record.lease_id(), 0);
    passed->insert(of.id);
  };
  Session* session = sessions_.Find(record.session_id());
  const std::shared_ptr<const Tenant> tenant =
      tenants_->Find(session == nullptr ? record.tenant() : session->tenant);
  if (tenant == nullptr) {
    log::Warning("session dropped: its tenant is not configured",
                 {{"session", log::ShortId(record.session_id())},
                  {"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"tenant", record.tenant()}});
    Drop(record.session_id(), worker, wakes);
    return;
  }
  if (session == nullptr &&
      sessions_.Ended(tenant->name, record.session_id())) {
    // The worker was away when it ended.
    Drop(record.session_id(), worker, wakes);
    return;
  }
  if (session == nullptr) {
    const size_t count = sessions_.CountOfTenant(tenant->name);
    if (count >= tenant->max_sessions) {
      // Absence of room is no order either: it stays, and new ones wait.
      log::Warning("adopts a session beyond the tenant's limit",
                   {{"session", log::ShortId(record.session_id())},
                    {"tenant", tenant->name},
                    {"worker", worker->id},
                    {"limit", tenant->max_sessions},
                    {"used", count}});
    }
    Session added;
    added.id = record.session_id();
    added.tenant = record.tenant();
    added.began_earlier = true;
    added.state = v1::SessionInfo::ADOPTED;
    added.open_time = clock_->Now();
    added.urgency = Known(record.urgency());
    added.deadline = clock_->Monotonic() + config_.session_timeout;
    session = sessions_.Add(std::move(added));
  } else if (session->tenant != record.tenant()) {
    log::Warning("lease not adopted: its session is another tenant's",
                 {{"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"tenant", record.tenant()}});
    return;
  } else if (absl::c_linear_search(session->returned_leases,
                                   record.lease_id())) {
    return pass(*session);
  } else if (HadEnded(record, *session)) {
    // The worker was away when it ended, and its virtual device may have
    // another one by now.
    log::Warning("lease not adopted: it had ended",
                 {{"lease", record.lease_id()},
                  {"session", log::ShortId(session->id)},
                  {"worker", worker->id}});
    return pass(*session);
  }
  // Also where this lease is not the one: the next one is to be newer.
  session->epoch = std::max(session->epoch, record.session_epoch());
  if (IsOfThePast(record, *session)) {
    // The client moved on.
    return pass(*session);
  }
  if (!record.migrates_from().empty()) {
    for (Migration& migration : session->migrations) {
      if (migration.lease_id != record.lease_id()) continue;
      // The client has said so before its worker did.
      if (migration.state == v1::MigrationInfo::FAILED) {
        return pass(*session);
      }
      if (migration.state == v1::MigrationInfo::DONE) {
        record.clear_migrates_from();
        migration.virtual_device = record.virtual_device();
        migration.to_worker_id = worker->id;
        // The other one's worker was here first.
        if (const Lease* const other =
                leases_.FindDevice(session->id, device)) {
          const std::string other_worker = other->worker_id;
          RemoveLease(other->id);
          LeaveWorker(session->id, other_worker, wakes);
        }
      }
    }
  }
  if (device.member == 0) session->bound_devices.insert(device.virtual_device);
  Lease lease;
  lease.id = record.lease_id();
  lease.issue_number = record.issue();
  lease.session_id = session->id;
  lease.tenant = record.tenant();
  lease.epoch = record.session_epoch();
  lease.device = device;
  lease.worker_id = worker->id;
  lease.incarnation = worker->incarnation;
  // The worker's word for them counts for nothing.
  lease.limits = tenant->limits;
  lease.tenant_limits = tenant->totals;
  lease.placement_reason = "adopted from the worker";
  if (const auto restored = restored_.find(lease.id);
      restored != restored_.end()) {
    lease.placement_reason = restored->second.lease.placement_reason();
    quotas_.Give(restored->second.tenant, restored->second.quota);
    restored_.erase(restored);
  }
  lease.created = clock_->Monotonic();
  lease.state = Lease::State::kGranted;
  lease.adopted = true;
  // The client says which of the two it uses, when it attaches again.
  lease.migrates_from = record.migrates_from();
  metrics_.recoveries.Add({"lease_adopted"});
  if (session->MayLog(clock_->Monotonic())) {
    log::Info("lease adopted", {{"lease", lease.id},
                                {"session", log::ShortId(session->id)},
                                {"tenant", session->tenant},
                                {"worker", worker->id}});
  }
  Lease* const adopted = AddLease(std::move(lease));
  ledger_.Open(adopted->id, adopted->tenant, worker->id);
  ledger_.Adopt(adopted->id, record.credits());
  EndOlder(*adopted, wakes);
  Issue(adopted);
  Touch(worker, wakes);
  TouchPeers(*adopted, wakes);
  // The client may have asked for it while nobody knew of it.
  if (session->pending.contains(device) && !adopted->migrating()) {
    LeaveLine(&session->pending.at(device));
    Grant(adopted, wakes);
  }
}

void Cluster::Leave(const StreamId& id) {
  MutexLock lock(&mu_);
  Worker* const worker = FindWorker(id);
  if (worker == nullptr) return;
  workers_.Disconnect(worker);
  RefreshFleet(*worker);
  log::Info("worker disconnected", {{"worker", worker->id}});
}

void Cluster::ListPeers(const Worker& worker, v1::DesiredState* desired) {
  absl::flat_hash_set<std::string> listed = {worker.id};
  absl::flat_hash_set<std::string> sessions;
  for (const Lease* own : leases_.OfWorker(worker.id)) {
    if (!sessions.insert(own->session_id).second) continue;
    for (const Lease* lease : leases_.OfSession(own->session_id)) {
      if (!listed.insert(lease->worker_id).second) continue;
      const Worker* const other = workers_.Find(lease->worker_id);
      v1::Peer* const peer = desired->add_peers();
      peer->set_worker_id(other->id);
      peer->set_incarnation(other->incarnation);
      peer->set_address(other->address);
    }
  }
}

void Cluster::TouchPeers(const Lease& lease, Wakes* wakes) {
  for (const Lease* other : leases_.OfSession(lease.session_id)) {
    if (other->worker_id != lease.worker_id) {
      Touch(workers_.Find(other->worker_id), wakes);
    }
  }
}

absl::StatusOr<std::optional<v1::DesiredState>> Cluster::NextDesiredState(
    const StreamId& id) {
  MutexLock lock(&mu_);
  if (stopping_) return DialAgain("the coordinator stops; dial again");
  Worker* const worker = FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  const absl::Duration now = clock_->Monotonic();
  if (!worker->dirty && now - worker->last_sent < config_.heartbeat_interval) {
    return std::nullopt;
  }
  worker->dirty = false;
  worker->last_sent = now;
  v1::DesiredState desired;
  desired.set_revision(++worker->revision);
  if (worker->revision == 1) {
    desired.set_protocol_version(worker->protocol_version);
  }
  keys_.List(&desired);
  const absl::Time wall = clock_->Now();
  for (Lease* lease : leases_.OfWorker(worker->id)) {
    if (lease->listed_revision == 0) lease->listed_revision = worker->revision;
    if (lease->reissue_time <= wall) Issue(lease);
    *desired.add_leases() = lease->issue;
  }
  for (const auto& [lease_id, save] : worker->settling) {
    if (save <= kept_saves_) desired.add_settled_lease_ids(lease_id);
  }
  ListPeers(*worker, &desired);
  for (std::string& tenant : SharingTenants()) {
    desired.add_sharing_tenants(std::move(tenant));
  }
  for (std::string& tenant : BatchingTenants()) {
    desired.add_batching_tenants(std::move(tenant));
  }
  TellPhases(worker, &desired);
  inquiries_.List(worker->id, &desired);
  for (auto& [session_id, revision] : worker->drops) {
    if (revision == 0) revision = worker->revision;
    desired.add_drop_session_ids(session_id);
  }
  for (auto& [lease_id, revision] : worker->closing) {
    if (desired.drop_lease_ids_size() == kMaxDroppedLeases) break;
    if (revision == 0) revision = worker->revision;
    desired.add_drop_lease_ids(lease_id);
  }
  return desired;
}

}  // namespace djinn::coordinator
