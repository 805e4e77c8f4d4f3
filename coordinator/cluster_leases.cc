// Leases as clients ask for them and give them back, their issues, and what
// they use.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/saturating.h"
#include "coordinator/cluster.h"
#include "coordinator/violation.h"

namespace djinn::coordinator {
namespace {

// Several messages for each virtual device.
constexpr size_t kMaxOutbox = 4 * Cluster::kMaxVirtualDevices;

// Kept of each session; several for each of its virtual devices.
constexpr size_t kMaxReturnedLeases = 4 * Cluster::kMaxVirtualDevices;
// How long a worker that was not reached comes last: a client that asks again
// and again waits as long in the end.
constexpr absl::Duration kUnreachedTime = absl::Minutes(5);

PendingLease PendingFrom(const v1::LeaseRequest& request) {
  PendingLease pending;
  pending.policy = request.placement_policy();
  const auto add = [&pending](uint64_t bytes) {
    pending.asked_bytes = SaturatingSum(pending.asked_bytes, bytes);
  };
  for (const v1::ContentHint& hint : request.contents()) {
    const ContentKey key{ContentHash{hint.hash_high(), hint.hash_low()},
                         hint.size_bytes()};
    // A tensor asked for twice is uploaded once.
    if (!pending.contents.insert(key).second) continue;
    add(hint.size_bytes());
  }
  pending.needed_bytes = request.needed_bytes();
  add(request.needed_bytes());
  return pending;
}

}  // namespace

absl::Status Cluster::RequestLease(const StreamId& id,
                                   const v1::LeaseRequest& request) {
  const MemberId device{request.virtual_device(), request.member()};
  if (device.virtual_device >= kMaxVirtualDevices) {
    return Violation(absl::StrCat("virtual device ", device.virtual_device,
                                  ": there are at most ", kMaxVirtualDevices));
  }
  if (device.member >= kMaxMembers) {
    return Violation(absl::StrCat("member ", device.member,
                                  " of a virtual device: there are at most ",
                                  kMaxMembers));
  }
  if (request.contents_size() > kMaxContentHints) {
    return Violation(
        absl::StrCat("a lease request with ", request.contents_size(),
                     " contents: at most ", kMaxContentHints, " are allowed"));
  }
  PendingLease asked = PendingFrom(request);
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) return session->end;
  if (session->outbox.size() >= kMaxOutbox) {
    return Violation("asks for leases without reading the answers");
  }
  if (const absl::Status policy = CheckPolicy(request.placement_policy());
      !policy.ok()) {
    Refuse(policy, device, session, &wakes);
    return absl::OkStatus();
  }
  const Lease* const lease = leases_.FindDevice(session->id, device);
  if (lease != nullptr && lease->state == Lease::State::kGranted) {
    v1::SessionResponse response;
    *response.mutable_granted() = GrantOf(*lease);
    Send(std::move(response), session, &wakes);
    return absl::OkStatus();
  }
  if (session->pending.contains(device)) return absl::OkStatus();
  asked.asked = clock_->Monotonic();
  asked.deadline = asked.asked + config_.lease_request_timeout;
  session->pending.emplace(device, std::move(asked));
  if (!untried_ || line_.empty() ||
      queue_stops_.Find(session->tenant) != nullptr) {
    TryPlace(device, session, &wakes);
    return absl::OkStatus();
  }
  // What has become free meanwhile is for those who waited for it.
  session->pending.at(device).obstacle =
      MakeError(absl::StatusCode::kUnavailable, "WAITS_IN_LINE",
                absl::StrCat(line_.size(), " others wait for a worker"));
  JoinLine(device, session);
  if (line_.size() <= scheduler::WaitingLine::kMaxTriedAtOnce) {
    RetryUnplaced(&wakes);
  }
  return absl::OkStatus();
}

absl::Status Cluster::ReturnLease(const StreamId& id,
                                  const v1::LeaseReturn& returned) {
  const std::string& lease_id = returned.lease_id();
  if (lease_id.empty() || lease_id.size() > kMaxLeaseId) {
    return Violation(
        absl::StrCat("a lease's id of ", lease_id.size(), " bytes"));
  }
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) return session->end;
  if (!absl::c_linear_search(session->returned_leases, lease_id)) {
    session->returned_leases.push_back(lease_id);
  }
  if (session->returned_leases.size() > kMaxReturnedLeases) {
    session->returned_leases.pop_front();
  }
  if (const auto found = restored_.find(lease_id);
      found != restored_.end() &&
      found->second.lease.session_id() == session->id) {
    quotas_.Give(found->second.tenant, found->second.quota);
    restored_.erase(found);
  }
  Lease* const lease = leases_.Find(lease_id);
  // One that was not granted yet the client cannot know.
  if (lease == nullptr || lease->session_id != session->id ||
      lease->state != Lease::State::kGranted) {
    return absl::OkStatus();
  }
  if (returned.unreachable()) {
    const absl::Duration now = clock_->Monotonic();
    std::erase_if(session->unreached,
                  [&](const auto& entry) { return entry.second <= now; });
    session->unreached[lease->worker_id] = now + kUnreachedTime;
  }
  metrics_.returned_leases.Add(
      {returned.unreachable() ? "unreachable" : "unused"});
  if (session->MayLog(clock_->Monotonic())) {
    log::Info("lease returned", {{"lease", lease->id},
                                 {"session", log::ShortId(session->id)},
                                 {"worker", lease->worker_id},
                                 {"unreachable", returned.unreachable()}});
  }
  const absl::Status why =
      MakeError(absl::StatusCode::kAborted, "LEASE_RETURNED",
                "the client gave the virtual device's lease back");
  if (Lease* const to = leases_.FindMigration(*lease)) {
    DropMigration(to, why, &wakes);
  }
  if (lease->migrating()) {
    DropMigration(lease, why, &wakes);
    return absl::OkStatus();
  }
  session->lost_leases.erase(lease->device);
  const std::string worker_id = lease->worker_id;
  RemoveLease(lease_id);
  LeaveWorker(session->id, worker_id, &wakes);
  return absl::OkStatus();
}

void Cluster::Issue(Lease* lease) {
  const absl::Time now = clock_->Now();
  // Workers' clocks may differ from ours by as much as a lease lives.
  const absl::Duration life =
      config_.lease_valid_for + config_.lease_grace_period;
  v1::LeaseClaims claims;
  claims.set_lease_id(lease->id);
  claims.set_tenant(lease->tenant);
  claims.set_session_id(lease->session_id);
  claims.set_session_epoch(lease->epoch);
  claims.set_virtual_device(lease->device.virtual_device);
  claims.set_member(lease->device.member);
  claims.set_worker_id(lease->worker_id);
  claims.set_worker_incarnation(lease->incarnation);
  claims.set_issue(++lease->issue_number);
  *claims.mutable_issue_time() = ToProtoTimestamp(now);
  *claims.mutable_expire_time() = ToProtoTimestamp(now + 2 * life);
  *claims.mutable_valid_for() = ToProtoDuration(config_.lease_valid_for);
  *claims.mutable_grace() = ToProtoDuration(config_.lease_grace_period);
  *claims.mutable_limits() = lease->limits;
  *claims.mutable_tenant_limits() = lease->tenant_limits;
  claims.set_migrates_from(lease->migrates_from);
  if (const auto tenant = tenants_->Find(lease->tenant)) {
    ledger_.Describe(lease->id, tenant->credits, &claims);
    claims.set_weight(tenant->weight);
    *claims.mutable_urgency() =
        Allowed(*tenant, sessions_.Find(lease->session_id)->urgency);
  }
  lease->issue = keys_.current().Sign(claims);
  lease->reissue_time = now + life / 2;
}

void Cluster::OpenAccount(const Lease& lease) {
  ledger_.Open(lease.id, lease.tenant, lease.worker_id);
  if (const auto tenant = tenants_->Find(lease.tenant)) {
    TopUp(lease.id, *tenant);
  }
}

void Cluster::CloseAccount(const Lease& lease) {
  ledger_.Close(lease.id, RatesOfLease(lease.id));
  Worker* const worker = workers_.Find(lease.worker_id);
  if (lease.issue_number == 0 || worker == nullptr) {
    // The worker never heard of it.
    ledger_.Settle(lease.id, RatesOfLease(lease.id));
  } else {
    worker->closing.emplace(lease.id, 0);
  }
}

void Cluster::RemoveLease(const std::string& lease_id) {
  Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr) return;
  CloseAccount(*lease);
  if (Lease* const to = leases_.FindMigration(*lease)) {
    // Of the two of its virtual device the other one counts now.
    std::swap(to->quota, lease->quota);
  }
  quotas_.Give(lease->tenant, lease->quota);
  // Where many end at once it is looked at once.
  stale_.insert(lease->worker_id);
  leases_.Remove(lease_id);
  untried_ = true;
}

void Cluster::Bill(const std::string& lease_id, const Use& used) {
  const CreditLedger::Account* const account = ledger_.Find(lease_id);
  if (account == nullptr) return;
  const absl::Duration before = account->billed.device_time;
  ledger_.Bill(lease_id, used, RatesOf(account->tenant));
  line_.Charge(account->tenant,
               absl::ToDoubleSeconds(account->billed.device_time - before),
               clock_->Monotonic());
}

absl::StatusOr<v1::LeaseClaims> Cluster::ReportedClaims(
    const v1::SignedLease& lease) const {
  // Without keys of an earlier process there is only the worker's word, which
  // the join token vouches for.
  if (first_process_ && !keys_.Knows(lease.key_id())) {
    return UncheckedClaims(lease);
  }
  return keys_.Verify(lease);
}

void Cluster::BillHeld(const std::string& lease_id, const Worker::Held& held,
                       Worker* worker, Wakes* wakes) {
  // What it names is its word alone: it speaks of its own leases.
  const CreditLedger::Account* const account = ledger_.Find(lease_id);
  if (account == nullptr || account->worker_id != worker->id) return;
  Bill(lease_id, Use::From(held.lease_use));
  Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr || lease->worker_id != worker->id) return;
  lease->out_of_credit = held.out_of_credit;
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(lease->tenant);
  if (tenant != nullptr && TopUp(lease_id, *tenant)) {
    lease->reissue_time = absl::InfinitePast();
    Touch(worker, wakes);
  }
}

void Cluster::EndReported(const v1::EndedLease& ended, Worker* worker,
                          Wakes* wakes) {
  const absl::StatusOr<v1::LeaseClaims> claims = ReportedClaims(ended.lease());
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning("the use of a lease is not believed",
                 {{"worker", worker->id}, {"status", claims.status()}});
    return;
  }
  const std::string& lease_id = claims->lease_id();
  // Without a key that is known the claims are its word, too.
  if (const CreditLedger::Account* const account = ledger_.Find(lease_id);
      account != nullptr && account->worker_id != worker->id) {
    return;
  }
  if (Lease* const lease = leases_.Find(lease_id);
      lease != nullptr && lease->worker_id == worker->id &&
      lease->state == Lease::State::kGranted) {
    // The worker gave it up while we were away for too long.
    EndLease(lease, "LEASE_EXPIRED", wakes);
  }
  // An account stays until its worker reports the lease no more. So one that an
  // earlier process did not keep is of a lease that came after its last save;
  // unless this process gave up waiting for it.
  const bool waits = restored_until_ != absl::InfiniteDuration();
  if ((first_process_ || waits) && ledger_.Find(lease_id) == nullptr) {
    ledger_.Open(lease_id, claims->tenant(), worker->id);
  }
  Bill(lease_id, Use::From(ended.use()));
  if (ended.measuring()) {
    worker->closing.emplace(lease_id, 0);
    return;
  }
  ledger_.Close(lease_id, RatesOfLease(lease_id));
  worker->closing.erase(lease_id);
  worker->settling.try_emplace(lease_id, saves_ + 1);
}

void Cluster::AbsorbUse(const v1::WorkerState& report, Worker* worker,
                        Wakes* wakes) {
  for (const auto& [lease_id, held] : worker->held) {
    BillHeld(lease_id, held, worker, wakes);
  }
  absl::flat_hash_set<std::string> reported, measuring;
  for (const v1::EndedLease& ended : report.ended_leases()) {
    const std::string lease_id = UncheckedClaims(ended.lease()).lease_id();
    reported.insert(lease_id);
    if (ended.measuring()) {
      measuring.insert(lease_id);
    } else if (worker->settling.contains(lease_id) &&
               leases_.Find(lease_id) == nullptr) {
      // Billed in full: it is reported until the worker has heard so, and to
      // check its signature again and again would hold up everybody.
      continue;
    }
    EndReported(ended, worker, wakes);
  }
  std::erase_if(worker->settling,
                [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                  if (reported.contains(entry.first)) return false;
                  ledger_.Settle(entry.first, RatesOfLease(entry.first));
                  return true;
                });
  // It has been told to end these, and knows nothing of them.
  std::erase_if(worker->closing,
                [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                  const auto& [lease_id, revision] = entry;
                  if (revision == 0 || revision > report.applied_revision() ||
                      worker->held.contains(lease_id) ||
                      measuring.contains(lease_id)) {
                    return false;
                  }
                  ledger_.Settle(lease_id, RatesOfLease(lease_id));
                  return true;
                });
}

}  // namespace djinn::coordinator
