// What outlives the process.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"
#include "coordinator/learnt_state.h"

namespace djinn::coordinator {
namespace {

constexpr char kTenant[] = "tenant/";
constexpr char kSession[] = "session/";
constexpr char kLease[] = "lease/";
constexpr char kAccount[] = "account/";
constexpr char kWorker[] = "worker/";
constexpr char kQueue[] = "queue/";
constexpr char kKey[] = "key/";
// Each report teaches something, and nothing depends on the last of it.
constexpr absl::Duration kLearntInterval = absl::Seconds(10);

absl::Status Corrupt(absl::string_view key) {
  return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                   absl::StrCat("\"", key, "\" cannot be read"));
}

CreditLedger::Tenant TenantFrom(const v1::StoredTenant& stored) {
  CreditLedger::Tenant tenant{Use::From(stored.used()),
                              Use::From(stored.used_before_period()),
                              stored.period()};
  if (stored.has_period_length()) {
    const absl::Duration length = FromProtoDuration(stored.period_length());
    tenant.period_length =
        length > absl::ZeroDuration() ? length : absl::InfiniteDuration();
  }
  return tenant;
}

// By which the tenant's allowance is below nothing.
double OwedOf(const std::string& tenant, scheduler::RateBudget* budget) {
  const double* const allowance = budget->Allowance(tenant);
  return allowance == nullptr ? 0 : std::max(0.0, -*allowance);
}

template <typename Message>
using Named = std::vector<std::pair<std::string, Message>>;

// Each entry's name and message under the prefix.
template <typename Message>
absl::StatusOr<Named<Message>> ReadEach(
    const std::map<std::string, std::string>& state, absl::string_view prefix) {
  Named<Message> entries;
  for (auto entry = state.lower_bound(std::string(prefix));
       entry != state.end() && absl::StartsWith(entry->first, prefix);
       ++entry) {
    auto& [name, message] = entries.emplace_back();
    if (!message.ParseFromString(entry->second)) return Corrupt(entry->first);
    name = std::string(absl::StripPrefix(entry->first, prefix));
  }
  return entries;
}

}  // namespace

std::map<std::string, std::string> Cluster::Save() {
  MutexLock saving_lock(&saving_mu_);
  std::map<std::string, std::string> state;
  std::optional<WorkTable::Learnt> learnt;
  {
    MutexLock lock(&mu_);
    SaveAllElse(&state);
    learnt = LearntToSave();
  }
  // Decisions do not wait for it.
  if (learnt.has_value()) saved_learnt_ = EncodeLearnt(*learnt);
  state.insert(saved_learnt_.begin(), saved_learnt_.end());
  return state;
}

void Cluster::SaveAllElse(std::map<std::string, std::string>* state) {
  const auto put = [&](const char* prefix, const std::string& name,
                       const auto& message) {
    (*state)[absl::StrCat(prefix, name)] = message.SerializeAsString();
  };
  ++saves_;
  for (const auto& [name, tenant] : ledger_.tenants()) {
    v1::StoredTenant stored;
    tenant.used.AddTo(stored.mutable_used());
    tenant.before_period.AddTo(stored.mutable_used_before_period());
    stored.set_period(tenant.period);
    if (tenant.period_length.has_value()) {
      *stored.mutable_period_length() =
          ToProtoDuration(*tenant.period_length == absl::InfiniteDuration()
                              ? absl::ZeroDuration()
                              : *tenant.period_length);
    }
    stored.set_owed_device_seconds(OwedOf(name, &device_rates_));
    stored.set_owed_bytes(OwedOf(name, &byte_rates_));
    put(kTenant, name, stored);
  }
  for (const auto& [id, session] : sessions_.all()) {
    v1::StoredSession stored;
    stored.set_tenant(session->tenant);
    stored.set_program(session->program);
    stored.set_session_epoch(session->epoch);
    *stored.mutable_urgency() = session->urgency;
    *stored.mutable_open_time() = ToProtoTimestamp(session->open_time);
    for (const uint32_t device : session->bound_devices) {
      stored.add_bound_devices(device);
    }
    // While workers are waited for, some may bring what is not known yet.
    stored.set_all_leases_known(session->all_leases_known &&
                                restored_until_ == absl::InfiniteDuration());
    put(kSession, id, stored);
  }
  for (const auto& [id, restored] : restored_) put(kLease, id, restored.lease);
  for (const auto& [id, lease] : leases_.all()) {
    v1::StoredLease stored;
    stored.set_session_id(lease->session_id);
    stored.set_placement_reason(lease->placement_reason);
    put(kLease, id, stored);
  }
  for (const auto& [id, account] : ledger_.accounts()) {
    v1::StoredAccount stored;
    stored.set_tenant(account.tenant);
    stored.set_worker_id(account.worker_id);
    account.granted.AddTo(stored.mutable_granted());
    account.billed.AddTo(stored.mutable_billed());
    stored.set_closed(account.closed);
    stored.set_device_time_rated(account.device_time_rated);
    stored.set_bytes_rated(account.bytes_rated);
    put(kAccount, id, stored);
  }
  for (const std::string& id : cordoned_) {
    v1::StoredWorker stored;
    stored.set_cordoned(true);
    stored.set_draining(draining_.contains(id));
    put(kWorker, id, stored);
  }
  for (const auto& [tenant, stop] : queue_stops_.all()) {
    put(kQueue, tenant, QueueStops::Save(stop));
  }
  for (const LeaseKeys::Key& key : keys_.keys()) {
    v1::StoredKey stored;
    stored.set_seed(key.signer.seed());
    *stored.mutable_since_time() = ToProtoTimestamp(key.since);
    put(kKey,
        absl::StrCat(
            absl::Dec(absl::ToUnixSeconds(key.since), absl::kZeroPad20), "/",
            key.signer.id()),
        stored);
  }
}

std::optional<WorkTable::Learnt> Cluster::LearntToSave() {
  const absl::Duration now = clock_->Monotonic();
  // There may be no other time to.
  if (now < next_learnt_ && !stopping_) return std::nullopt;
  std::optional<WorkTable::Learnt> learnt = works_.TakeLearnt();
  if (learnt.has_value()) next_learnt_ = now + kLearntInterval;
  return learnt;
}

void Cluster::NoteKept() {
  Wakes wakes;
  MutexLock lock(&mu_);
  keys_.NoteKept(saves_);
  for (const auto& [id, worker] : workers_.all()) {
    for (const auto& [lease_id, save] : worker->settling) {
      if (save > kept_saves_ && save <= saves_) Touch(worker.get(), &wakes);
    }
  }
  kept_saves_ = saves_;
}

absl::Status Cluster::Restore(const std::map<std::string, std::string>& state) {
  // All of it is read before anything of it counts.
  std::deque<LeaseKeys::Key> keys;
  DJINN_ASSIGN_OR_RETURN(const auto stored_keys,
                         ReadEach<v1::StoredKey>(state, kKey));
  for (const auto& [name, stored] : stored_keys) {
    absl::StatusOr<LeaseSigner> signer = LeaseSigner::FromSeed(stored.seed());
    if (!signer.ok()) return Corrupt(kKey + name);
    keys.push_back({*std::move(signer),
                    absl::FromUnixSeconds(stored.since_time().seconds()),
                    /*save=*/0});
  }
  DJINN_ASSIGN_OR_RETURN(const auto tenants,
                         ReadEach<v1::StoredTenant>(state, kTenant));
  DJINN_ASSIGN_OR_RETURN(const auto accounts,
                         ReadEach<v1::StoredAccount>(state, kAccount));
  DJINN_ASSIGN_OR_RETURN(const auto workers,
                         ReadEach<v1::StoredWorker>(state, kWorker));
  DJINN_ASSIGN_OR_RETURN(const auto queues,
                         ReadEach<v1::StoredQueue>(state, kQueue));
  DJINN_ASSIGN_OR_RETURN(const auto leases,
                         ReadEach<v1::StoredLease>(state, kLease));
  DJINN_ASSIGN_OR_RETURN(const auto sessions,
                         ReadEach<v1::StoredSession>(state, kSession));
  WorkTable::Learnt learnt = DecodeLearnt(state);
  std::erase_if(learnt.programs, [&](const auto& program) {
    return tenants_->Find(program->tenant) == nullptr;
  });
  MutexLock lock(&mu_);
  first_process_ = false;
  const absl::Duration now = clock_->Monotonic();
  restored_until_ = now + config_.lease_valid_for + config_.lease_grace_period;
  works_.Restore(std::move(learnt));
  if (!keys.empty()) keys_.Restore(std::move(keys));
  keys_.Update(clock_->Now(), saves_ + 1);
  for (const auto& [name, stored] : tenants) {
    ledger_.Restore(name, TenantFrom(stored));
  }
  if (!state.empty()) {
    // What it was granted last may not have been kept: whoever could have a
    // full allowance by a restart would have it again and again.
    for (const auto& [name, tenant] : *tenants_->all()) {
      if (double* const seconds = device_rates_.Allowance(name)) *seconds = 0;
      if (double* const bytes = byte_rates_.Allowance(name)) *bytes = 0;
    }
    for (const auto& [name, stored] : tenants) {
      if (double* const seconds = device_rates_.Allowance(name)) {
        *seconds -= stored.owed_device_seconds();
      }
      if (double* const bytes = byte_rates_.Allowance(name)) {
        *bytes -= stored.owed_bytes();
      }
    }
  }
  for (const auto& [id, stored] : accounts) {
    ledger_.Restore(id, CreditLedger::Account{
                            stored.tenant(), stored.worker_id(),
                            Use::From(stored.granted()),
                            Use::From(stored.billed()), stored.closed(),
                            stored.device_time_rated(), stored.bytes_rated()});
  }
  for (const auto& [id, stored] : workers) {
    if (stored.cordoned()) cordoned_.insert(id);
    if (stored.draining()) draining_.insert(id);
  }
  for (const auto& [tenant, stored] : queues) {
    queue_stops_.Restore(tenant, stored);
  }
  for (const auto& [id, stored] : sessions) {
    // Its workers are told when they report it.
    if (tenants_->Find(stored.tenant()) == nullptr) continue;
    Session session;
    session.id = id;
    session.tenant = stored.tenant();
    session.program = stored.program();
    session.began_earlier = true;
    session.epoch = stored.session_epoch();
    session.urgency = Known(stored.urgency());
    session.open_time = FromProtoTimestamp(stored.open_time());
    session.bound_devices = {stored.bound_devices().begin(),
                             stored.bound_devices().end()};
    session.all_leases_known = stored.all_leases_known();
    if (session.all_leases_known) {
      session.kept = Session::Kept{session.epoch, session.bound_devices};
    }
    // Its client has as long as after any break.
    session.state = v1::SessionInfo::DETACHED;
    session.deadline = now + config_.session_timeout;
    sessions_.Add(std::move(session));
  }
  for (const auto& [id, stored] : leases) {
    RestoredLease& restored = restored_[id];
    restored.lease = stored;
    const Session* const session = sessions_.Find(stored.session_id());
    const auto tenant =
        session == nullptr ? nullptr : tenants_->Find(session->tenant);
    if (tenant == nullptr) continue;
    if (const CreditLedger::Account* const account = ledger_.Find(id)) {
      restored.worker_id = account->worker_id;
    }
    awaited_[restored.worker_id] |= PhaseBit(*session);
    // Two of one virtual device that was on its way count both, for once: what
    // says so is at their workers.
    restored.tenant = tenant->name;
    restored.quota = LeaseQuota(*tenant);
    quotas_.Take(restored.tenant, restored.quota);
  }
  return absl::OkStatus();
}

void Cluster::ForgetRestored(
    absl::FunctionRef<bool(const RestoredLease&)> which) {
  for (auto it = restored_.begin(); it != restored_.end();) {
    if (!which(it->second)) {
      ++it;
      continue;
    }
    quotas_.Give(it->second.tenant, it->second.quota);
    it = restored_.erase(it);
  }
}

void Cluster::SettleForgotten() {
  restored_until_ = absl::InfiniteDuration();
  awaited_.clear();
  ForgetRestored([](const RestoredLease&) { return true; });
  std::vector<std::string> forgotten;
  for (const auto& [lease_id, account] : ledger_.accounts()) {
    const Worker* const worker = workers_.Find(account.worker_id);
    if (leases_.Find(lease_id) == nullptr && !account.retired &&
        (worker == nullptr || !(worker->closing.contains(lease_id) ||
                                worker->settling.contains(lease_id)))) {
      forgotten.push_back(lease_id);
    }
  }
  for (const std::string& lease_id : forgotten) {
    ledger_.Retire(lease_id, clock_->Monotonic(), RatesOfLease(lease_id));
  }
}

}  // namespace djinn::coordinator
