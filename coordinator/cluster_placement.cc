// Which worker a virtual device gets.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "common/error.h"
#include "common/log/log.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

// Of runs on a worker that has not reported any.
constexpr double kSecondsPerRun = 5e-3;
// A session that has not brought what it announced by then will not.
constexpr absl::Duration kPromiseTime = absl::Seconds(30);
// Requests without a worker that one event has tried again: more would hold up
// everybody else.
constexpr size_t kMaxRetries = 256;
// Of a decision, for operators.
constexpr size_t kMaxKept = 32;

// Of what tenants share.
constexpr char kShared[] = "";

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

void Cluster::RefreshFleet(const Worker& worker) {
  if (!worker.usable()) {
    fleet_.Remove(worker.id);
    return;
  }
  scheduler::WorkerFacts facts;
  facts.id = worker.id;
  facts.device = KindOf(worker.device);
  facts.memory_bytes = worker.memory_bytes;
  uint64_t promised = 0;
  const absl::Duration now = clock_->Monotonic();
  for (const Lease* lease : leases_.OfWorker(worker.id)) {
    ++facts.leases;
    if (now - lease->created > kPromiseTime) continue;
    const Worker::Held* const held = HeldFor(*lease);
    const uint64_t brought = held == nullptr ? 0 : held->storage_bytes;
    promised +=
        lease->promised_bytes - std::min(lease->promised_bytes, brought);
  }
  // The worker counts what it would evict as free.
  facts.available_bytes =
      worker.free_bytes - std::min(worker.free_bytes, promised);
  facts.queued_runs = worker.queued_runs;
  facts.queued_seconds =
      worker.queued_runs *
      (worker.seconds_per_run > 0 ? worker.seconds_per_run : kSecondsPerRun);
  facts.busy_share = worker.busy_share;
  facts.speed = SpeedOf(worker);
  facts.price_per_second = worker.price_per_hour / 3600;
  facts.link_bytes_per_second =
      static_cast<double>(worker.link_bytes_per_second);
  facts.capabilities = worker.capabilities;
  facts.phases = worker.phases;
  facts.cordoned = cordoned_.contains(worker.id);
  fleet_.Put(std::move(facts));
}

bool Cluster::AbsorbState(const Worker& worker) {
  const scheduler::Fleet::Member* const before = fleet_.Find(worker.id);
  const bool known = before != nullptr;
  const uint64_t available = known ? before->facts.available_bytes : 0;
  absl::flat_hash_set<scheduler::StateKey> held;
  for (const auto& [tenant, contents] : worker.contents) {
    const auto owner = tenants_->Find(tenant);
    const bool shared = owner != nullptr && owner->share_contents;
    for (const ContentKey& key : contents) {
      held.insert(KeyOf(tenant, key));
      if (shared) held.insert(KeyOf(kShared, key));
    }
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
  request.asked_bytes = pending.content_bytes;
  const bool shares = tenant != nullptr && tenant->share_contents;
  for (const ContentKey& key : pending.contents) {
    request.state.push_back(
        {KeyOf(shares ? kShared : session.tenant, key), key.second});
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
    unplaced_.insert({session->id, device});
    return;
  }
  unplaced_.erase({session->id, device});
  session->pending.erase(device);
  Refuse(obstacle, device, session, wakes);
}

void Cluster::TryPlace(MemberId device, Session* session, Wakes* wakes) {
  PendingLease& pending = session->pending.at(device);
  const absl::Duration start = clock_->Monotonic();
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
  auto decision = std::make_shared<scheduler::Decision>(scheduler::Place(
      request, fleet_, *choice.policy, works_.factors(), &draws_));
  metrics_.decisions.Observe(clock_->Monotonic() - start);
  const bool placed = !decision->worker_id.empty();
  metrics_.attempts.Add(
      {placed ? "placed"
              : absl::AsciiStrToLower(ErrorReason(decision->obstacle))});
  if (decision->considered.size() > kMaxKept) {
    decision->considered.resize(kMaxKept);
  }
  pending.decision = {decision, choice.source, start};
  if (absl::IsFailedPrecondition(decision->obstacle)) {
    // Waiting will not help.
    unplaced_.erase({session->id, device});
    const absl::Status why = decision->obstacle;
    session->pending.erase(device);
    Refuse(why, device, session, wakes);
    return;
  }
  if (!placed) {
    return LeaveUnplaced(device, decision->obstacle, session, wakes);
  }
  if (tenant != nullptr) {
    // It may be a lease's of which nobody has told since a restart.
    const absl::Status free = ReclaimQuota(*tenant, wakes);
    if (!free.ok()) return LeaveUnplaced(device, free, session, wakes);
  }
  unplaced_.erase({session->id, device});
  Worker* const worker = workers_.Find(decision->worker_id);
  Lease lease = NewLease(*worker, device, tenant.get(), session);
  lease.placement_reason = decision->reason;
  lease.decision = pending.decision;
  lease.promised_bytes = decision->considered.front().terms.missing_bytes;
  pending.lease_id = lease.id;
  log::Info("lease offered", {{"lease", lease.id},
                              {"session", log::ShortId(session->id)},
                              {"tenant", session->tenant},
                              {"device", device.virtual_device},
                              {"member", device.member},
                              {"worker", worker->id},
                              {"policy", decision->policy},
                              {"reason", lease.placement_reason}});
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

void Cluster::RetryUnplaced(Wakes* wakes) {
  untried_ = false;
  // TryPlace changes the set; the next call goes on where this one ends.
  std::vector<std::pair<std::string, MemberId>> turn;
  auto next = unplaced_.upper_bound(last_retried_);
  while (turn.size() < std::min(unplaced_.size(), kMaxRetries)) {
    if (next == unplaced_.end()) next = unplaced_.begin();
    turn.push_back(*next++);
  }
  if (!turn.empty()) last_retried_ = turn.back();
  // Of those who compete for quota, who has the lesser share goes first.
  std::map<std::vector<double>, std::vector<std::pair<std::string, MemberId>>>
      in_order;
  for (const auto& unplaced : turn) {
    const std::string& name = sessions_.Find(unplaced.first)->tenant;
    const auto tenant = tenants_->Find(name);
    const scheduler::Amounts asked =
        tenant == nullptr ? scheduler::Amounts() : LeaseQuota(*tenant);
    in_order[quotas_.Precedence(name, asked)].push_back(unplaced);
  }
  turn.clear();
  for (const auto& [share, equals] : in_order) {
    turn.insert(turn.end(), equals.begin(), equals.end());
  }
  for (const auto& [session_id, device] : turn) {
    TryPlace(device, sessions_.Find(session_id), wakes);
  }
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
  if (worker == nullptr) {
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
  RefreshFleet(*worker);
  RetryUnplaced(&wakes);
  AdvanceMigrations(clock_->Monotonic(), &wakes);
  v1::WorkerInfo info;
  Describe(*worker, &info);
  return info;
}

}  // namespace djinn::coordinator
