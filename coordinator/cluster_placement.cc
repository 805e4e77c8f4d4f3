// Which worker a virtual device gets.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/saturating.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {

using Ticket = scheduler::WaitingLine::Ticket;

namespace {

// Of runs on a worker that has not reported any.
constexpr double kSecondsPerRun = 5e-3;
// A session that has not brought what it announced by then will not.
constexpr absl::Duration kPromiseTime = absl::Seconds(30);
// Of a decision, for operators.
constexpr size_t kMaxKept = 32;

scheduler::StateKey KeyOf(const std::string& tenant, const ContentKey& key) {
  return absl::HashOf(tenant, key.first.high, key.first.low, key.second);
}

// "cuda:0" is of the kind "cuda".
std::string KindOf(const std::string& device) {
  return device.substr(0, device.find(':'));
}

semantics::DeviceSpeed SpeedOf(const Worker& worker) {
  return {worker.speed.flops_per_second(), worker.speed.bytes_per_second(),
          worker.speed.seconds_per_call()};
}

}  // namespace

uint64_t Cluster::PromisedBytes(const Lease& lease) {
  if (clock_->Monotonic() - lease.created > kPromiseTime) return 0;
  const Worker::Held* const held = HeldFor(lease);
  const uint64_t brought = held == nullptr ? 0 : held->storage_bytes;
  return lease.promised_bytes - std::min(lease.promised_bytes, brought);
}

uint64_t Cluster::PromisedBytes(const Worker& worker) {
  struct OfTenant {
    uint64_t promised = 0;
    uint64_t most = 0;
  };
  absl::flat_hash_map<absl::string_view, OfTenant> tenants;
  for (Lease* lease : leases_.PromisingOfWorker(worker.id)) {
    if (clock_->Monotonic() - lease->created > kPromiseTime) {
      leases_.EndPromise(lease);
      continue;
    }
    OfTenant& of = tenants[lease->tenant];
    of.promised = SaturatingSum(of.promised, PromisedBytes(*lease));
    of.most = std::max(of.most, lease->tenant_limits.memory_bytes());
  }
  uint64_t promised = 0;
  for (const auto& [tenant, of] : tenants) {
    const auto held = worker.held_bytes.find(tenant);
    const uint64_t has = held == worker.held_bytes.end() ? 0 : held->second;
    promised = SaturatingSum(
        promised, std::min(of.promised, of.most - std::min(of.most, has)));
  }
  return promised;
}

void Cluster::RefreshFleet(const Worker& worker) {
  if (!worker.usable()) {
    fleet_.Remove(worker.id);
    return;
  }
  scheduler::WorkerFacts facts;
  facts.id = worker.id;
  facts.device = KindOf(worker.device);
  facts.memory_bytes = worker.memory_bytes;
  facts.leases = static_cast<uint32_t>(leases_.CountOfWorker(worker.id));
  // The worker counts what it would evict as free.
  facts.available_bytes =
      worker.free_bytes - std::min(worker.free_bytes, PromisedBytes(worker));
  facts.queued_runs = worker.queued_runs;
  facts.queued_seconds =
      worker.queued_runs *
      (worker.seconds_per_run > 0 ? worker.seconds_per_run : kSecondsPerRun);
  facts.busy_share = worker.busy_share;
  facts.speed = SpeedOf(worker);
  facts.price_per_second = worker.price_per_hour / 3600;
  facts.link_bytes_per_second =
      static_cast<double>(worker.link_bytes_per_second);
  facts.client_bytes_per_second =
      static_cast<double>(worker.client_bytes_per_second);
  facts.capabilities = worker.capabilities;
  facts.phases = worker.phases;
  facts.cordoned = cordoned_.contains(worker.id);
  fleet_.Put(std::move(facts));
}

const scheduler::Fleet& Cluster::FreshFleet() {
  for (const std::string& worker_id : std::exchange(stale_, {})) {
    if (const Worker* const worker = workers_.Find(worker_id)) {
      RefreshFleet(*worker);
    }
  }
  return fleet_;
}

bool Cluster::AbsorbState(const Worker& worker) {
  const scheduler::Fleet::Member* const before = FreshFleet().Find(worker.id);
  const bool known = before != nullptr;
  const uint64_t available = known ? before->facts.available_bytes : 0;
  absl::flat_hash_set<scheduler::StateKey> held;
  for (const auto& [tenant, contents] : worker.contents) {
    for (const ContentKey& key : contents) held.insert(KeyOf(tenant, key));
  }
  RefreshFleet(worker);
  fleet_.SetHeld(worker.id, std::move(held));
  for (const Worker::Ran& ran : worker.ran) {
    works_.Learn(ran.fingerprint, KindOf(worker.device), SpeedOf(worker),
                 ran.runs, ran.time);
  }
  return !known || fleet_.Find(worker.id)->facts.available_bytes > available;
}

PolicyChoice Cluster::PolicyFor(const std::string& of_request,
                                const std::string& of_session,
                                const Tenant* tenant) const {
  const std::pair<const std::string*, const char*> wishes[] = {
      {&of_request, "request"},
      {&of_session, "session"},
      {tenant == nullptr ? nullptr : &tenant->placement.policy, "tenant"},
      {&config_.placement_policy, "cluster"}};
  for (const auto& [name, source] : wishes) {
    if (name == nullptr || name->empty()) continue;
    // Names were checked when they came.
    return {*scheduler::FindPolicy(*name), source};
  }
  return {*scheduler::FindPolicy(scheduler::kDefaultPolicy), "cluster"};
}

SharedWork Cluster::WorkOf(const Session& session) const {
  return session.work != nullptr
             ? session.work
             : works_.OfProgram(session.tenant, session.program);
}

scheduler::Request Cluster::RequestFor(const Session& session,
                                       const PendingLease& pending,
                                       const Tenant* tenant,
                                       const SharedWork& work) {
  scheduler::Request request;
  request.asked_bytes = pending.asked_bytes;
  if (tenant != nullptr) {
    request.asked_bytes = std::min(request.asked_bytes, LeaseMemory(*tenant));
  }
  // Also of a tenant that shares contents: who has not proven that it has the
  // bytes is not to learn here that somebody has them.
  for (const ContentKey& key : pending.contents) {
    request.state.push_back({KeyOf(session.tenant, key), key.second});
  }
  if (work != nullptr) {
    request.work = work.get();
    request.phase = work->phase();
  }
  if (tenant != nullptr) request.required = tenant->placement.required;
  for (const Lease* lease : leases_.OfSession(session.id)) {
    ++request.session_leases[lease->worker_id];
  }
  const absl::Duration now = clock_->Monotonic();
  for (const auto& [worker_id, until] : session.unreached) {
    if (now < until) request.unreached.insert(worker_id);
  }
  reservation_.Apply(pending.ticket, ClassInLine(session, tenant), &request);
  // While it still has to forget the session, it cannot serve it anew.
  request.barred = [workers = &workers_,
                    &session](const std::string& worker_id) {
    return workers->Find(worker_id)->drops.contains(session.id)
               ? "has to forget the session first"
               : "";
  };
  return request;
}

bool Cluster::Spans(const Session& session, uint32_t virtual_device) {
  for (const Lease* lease : leases_.OfSession(session.id)) {
    if (lease->device.virtual_device == virtual_device &&
        lease->device.member > 0) {
      return true;
    }
  }
  return false;
}

void Cluster::LeaveUnplaced(MemberId device, const absl::Status& obstacle,
                            Session* session, Wakes* wakes) {
  if (device.member == 0) {
    session->pending.at(device).obstacle = obstacle;
    JoinLine(device, session);
    return;
  }
  LeaveLine(&session->pending.at(device));
  session->pending.erase(device);
  Refuse(obstacle, device, session, wakes);
}

KeptDecision Cluster::Decide(const scheduler::Request& request,
                             const PolicyChoice& choice) {
  const absl::Duration start = clock_->Monotonic();
  auto decision = std::make_shared<scheduler::Decision>(scheduler::Place(
      request, FreshFleet(), *choice.policy, works_.factors(), &draws_));
  metrics_.decisions.Observe(clock_->Monotonic() - start);
  if (decision->considered.size() > kMaxKept) {
    decision->considered.resize(kMaxKept);
  }
  return {std::move(decision), choice.source, start};
}

void Cluster::TryPlace(MemberId device, Session* session, Wakes* wakes) {
  PendingLease& pending = session->pending.at(device);
  const absl::Duration start = clock_->Monotonic();
  // Known until it is looked for again.
  if (start >= pending.next_reclaim) pending.put_off.clear();
  if (queue_stops_.Find(session->tenant) != nullptr) {
    metrics_.attempts.Add({"queue_stopped"});
    LeaveUnplaced(device, QueueStopped(session->tenant), session, wakes);
    return;
  }
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(session->tenant);
  if (tenant != nullptr && !MayFitQuota(device, *tenant, session, wakes)) {
    return;
  }
  const PolicyChoice choice =
      PolicyFor(pending.policy, session->policy, tenant.get());
  const SharedWork work = WorkOf(*session);
  scheduler::Request request =
      RequestFor(*session, pending, tenant.get(), work);
  if (device.member > 0) {
    // Its room is what is wanted, and that of its other workers has been used.
    request.barred = [this, device, session, busy = std::move(request.barred)](
                         const std::string& worker_id) -> std::string {
      for (const Lease* lease : leases_.OfSession(session->id)) {
        if (lease->worker_id == worker_id &&
            lease->device.virtual_device == device.virtual_device) {
          return "has a part of the virtual device";
        }
      }
      return busy(worker_id);
    };
  }
  pending.decision = Decide(request, choice);
  const std::shared_ptr<const scheduler::Decision> decision =
      pending.decision.decision;
  const bool placed = !decision->worker_id.empty();
  metrics_.attempts.Add(
      {placed ? "placed"
              : absl::AsciiStrToLower(ErrorReason(decision->obstacle))});
  if (absl::IsFailedPrecondition(decision->obstacle)) {
    // Waiting will not help.
    LeaveLine(&pending);
    const absl::Status why = decision->obstacle;
    session->pending.erase(device);
    Refuse(why, device, session, wakes);
    return;
  }
  if (!placed) {
    LeaveUnplaced(device, decision->obstacle, session, wakes);
    if (device.member == 0 && tenant != nullptr &&
        ErrorReason(decision->obstacle) == "NO_CAPACITY") {
      ReclaimRoom(device, *tenant, request, session, wakes);
    }
    return;
  }
  if (tenant != nullptr) {
    // It may be a lease's of which nobody has told since a restart.
    const absl::Status free = ReclaimQuota(*tenant, &pending, wakes);
    if (!free.ok()) {
      // It waits for quota, not for the worker that was found.
      pending.decision = {};
      return LeaveUnplaced(device, free, session, wakes);
    }
  }
  line_.Serve(pending.ticket, start);
  LeaveLine(&pending);
  line_.Charge(session->tenant, scheduler::WaitingLine::kTurn, start);
  Worker* const worker = workers_.Find(decision->worker_id);
  Lease lease = NewLease(*worker, device, tenant.get(), session);
  lease.placement_reason = decision->reason;
  lease.decision = pending.decision;
  lease.promised_bytes = decision->considered.front().terms.missing_bytes;
  pending.lease_id = lease.id;
  if (session->MayLog(start)) {
    log::Info("lease offered", {{"lease", lease.id},
                                {"session", log::ShortId(session->id)},
                                {"tenant", session->tenant},
                                {"device", device.virtual_device},
                                {"member", device.member},
                                {"worker", worker->id},
                                {"policy", decision->policy},
                                {"reason", lease.placement_reason}});
  }
  const Lease* const added = AddLease(std::move(lease));
  OpenAccount(*added);
  RefreshFleet(*worker);
  Touch(worker, wakes);
  TouchPeers(*added, wakes);
}

Lease Cluster::NewLease(const Worker& worker, MemberId device,
                        const Tenant* tenant, Session* session) {
  if (device.member > 0 ||
      !session->bound_devices.insert(device.virtual_device).second) {
    ++session->epoch;
  }
  Lease lease;
  lease.id = absl::BytesToHexString(random_->Bytes(8));
  lease.session_id = session->id;
  lease.tenant = session->tenant;
  lease.epoch = session->epoch;
  lease.device = device;
  lease.worker_id = worker.id;
  lease.incarnation = worker.incarnation;
  if (tenant != nullptr) {
    lease.limits = tenant->limits;
    lease.tenant_limits = tenant->totals;
  }
  lease.created = clock_->Monotonic();
  return lease;
}

void Cluster::JoinLine(MemberId device, Session* session) {
  PendingLease& pending = session->pending.at(device);
  if (queue_stops_.Find(session->tenant) != nullptr) {
    return SetAside(&pending, session->tenant);
  }
  if (pending.ticket != 0) return;
  pending.ticket = line_.Join({.tenant = session->tenant,
                               .returns = session->returning.contains(device)},
                              clock_->Monotonic());
  unplaced_.emplace(pending.ticket, std::pair(session->id, device));
  ChangePlaces(session);
}

void Cluster::LeaveLine(PendingLease* pending) {
  // What was kept for it may be others' now.
  if (reservation_.Lift(pending->ticket)) untried_ = true;
  line_.Leave(pending->ticket, clock_->Monotonic());
  unplaced_.erase(pending->ticket);
  pending->ticket = 0;
}

int Cluster::ClassInLine(const Session& session, const Tenant* tenant) {
  return EffectiveClass(
      tenant == nullptr ? session.urgency.priority_class()
                        : Allowed(*tenant, session.urgency).priority_class());
}

void Cluster::ChangePlaces(Session* session) {
  const auto tenant = tenants_->Find(session->tenant);
  const v1::Urgency urgency =
      tenant == nullptr ? session->urgency : Allowed(*tenant, session->urgency);
  const absl::Duration within = urgency.has_run_deadline()
                                    ? FromProtoDuration(urgency.run_deadline())
                                    : absl::InfiniteDuration();
  for (const auto& [device, pending] : session->pending) {
    line_.Change(pending.ticket, ClassInLine(*session, tenant.get()),
                 pending.asked + within);
  }
}

scheduler::WaitingLine::Precedence Cluster::PrecedenceInLine() const {
  return
      [tenants = tenants_->all(), quotas = &quotas_](const std::string& name) {
        const auto tenant = tenants->find(name);
        return quotas->Precedence(name, tenant == tenants->end()
                                            ? scheduler::Amounts()
                                            : LeaseQuota(*tenant->second));
      };
}

void Cluster::RetryUnplaced(Wakes* wakes) {
  untried_ = false;
  if (line_.empty()) return;
  const absl::Duration start = clock_->Monotonic();
  const size_t waited = line_.size();
  const std::vector<Ticket> tried =
      line_.Try(start, PrecedenceInLine(),
                [&](Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                  // It may have been refused because of another one.
                  const auto unplaced = unplaced_.find(ticket);
                  if (unplaced == unplaced_.end()) return true;
                  const auto [session_id, device] = unplaced->second;
                  TryPlace(device, sessions_.Find(session_id), wakes);
                  return !unplaced_.contains(ticket);
                });
  // Where there was room for some there may be for those behind them, too, who
  // go before whoever comes meanwhile.
  untried_ = tried.size() < waited && line_.size() < waited;
  ReviewReservation(tried);
  const absl::Duration end = clock_->Monotonic();
  next_retry_ = end + 3 * (end - start);
}

void Cluster::RetryInTime(Wakes* wakes) {
  if (clock_->Monotonic() < next_retry_) {
    untried_ = true;
  } else {
    RetryUnplaced(wakes);
  }
}

void Cluster::ReviewReservation(absl::Span<const Ticket> tried) {
  const std::string before = reservation_.worker_id();
  const auto find = [this](Ticket ticket) {
    const auto& [session_id, device] = unplaced_.at(ticket);
    Session* const session = sessions_.Find(session_id);
    return std::pair(session, &session->pending.at(device));
  };
  reservation_.Review(
      tried,
      [&](Ticket ticket) -> std::optional<scheduler::Reservation::Waiter> {
        if (!unplaced_.contains(ticket)) return std::nullopt;
        const auto [session, pending] = find(ticket);
        if (ErrorReason(pending->obstacle) != "NO_CAPACITY") {
          return std::nullopt;
        }
        const auto tenant = tenants_->Find(session->tenant);
        return scheduler::Reservation::Waiter{
            ClassInLine(*session, tenant.get()), pending->asked};
      },
      [&](Ticket ticket) {
        const auto [session, pending] = find(ticket);
        const auto tenant = tenants_->Find(session->tenant);
        const SharedWork work = WorkOf(*session);
        scheduler::Request request =
            RequestFor(*session, *pending, tenant.get(), work);
        // It would not outlive this, and how long it takes does not matter.
        request.work = nullptr;
        return request;
      },
      FreshFleet(), clock_->Monotonic());
  if (reservation_.ticket() == 0 || reservation_.worker_id() == before) return;
  const Session& session = *find(reservation_.ticket()).first;
  log::Info("worker kept for the first in line",
            {{"worker", reservation_.worker_id()},
             {"session", log::ShortId(session.id)},
             {"tenant", session.tenant}});
}

absl::StatusOr<v1::WorkerInfo> Cluster::CordonWorker(const std::string& id,
                                                     bool cordoned,
                                                     bool drain) {
  if (drain && !cordoned) {
    return MakeError(absl::StatusCode::kInvalidArgument, "DRAIN_NEEDS_CORDON",
                     "a worker that gets new leases is not drained");
  }
  Wakes wakes;
  MutexLock lock(&mu_);
  const Worker* const worker = workers_.Find(id);
  // What is kept away from one that is gone for good can be let come again.
  if (worker == nullptr && (cordoned || !cordoned_.contains(id))) {
    return MakeError(absl::StatusCode::kNotFound, "WORKER_UNKNOWN",
                     "there is no \"" + id + "\"");
  }
  if (cordoned) {
    cordoned_.insert(id);
  } else {
    cordoned_.erase(id);
  }
  if (drain) {
    draining_.insert(id);
  } else {
    draining_.erase(id);
  }
  log::Info(drain      ? "worker drained"
            : cordoned ? "worker cordoned"
                       : "worker uncordoned",
            {{"worker", id}});
  v1::WorkerInfo info;
  if (worker == nullptr) {
    info.set_worker_id(id);
    return info;
  }
  RefreshFleet(*worker);
  RetryUnplaced(&wakes);
  AdvanceDrains(clock_->Monotonic(), &wakes);
  Describe(*worker, &info);
  return info;
}

}  // namespace djinn::coordinator
