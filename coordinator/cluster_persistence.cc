#include "coordinator/cluster_persistence.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/net/proto_duration.h"
#include "common/status_macros.h"
#include "coordinator/cluster_credits.h"
#include "coordinator/cluster_demand_meter.h"
#include "coordinator/cluster_notices.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/learnt_state.h"
#include "coordinator/lease_keys.h"
#include "coordinator/queue_stops.h"
#include "coordinator/session_table.h"
#include "coordinator/tenants.h"
#include "coordinator/urgency.h"
#include "coordinator/work_table.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "scheduler/quota/rate_budget.h"

namespace djinn::coordinator::persistence {
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

// Adds all but what was learnt of work.
void SaveAllElse(ClusterState& state, std::map<std::string, std::string>* saved)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const auto put = [&](const char* prefix, const std::string& name,
                       const auto& message) {
    (*saved)[absl::StrCat(prefix, name)] = message.SerializeAsString();
  };
  ++state.saves;
  for (const auto& [name, tenant] : state.ledger.tenants()) {
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
    stored.set_owed_device_seconds(OwedOf(name, &state.device_rates));
    stored.set_owed_bytes(OwedOf(name, &state.byte_rates));
    put(kTenant, name, stored);
  }
  for (const auto& [id, session] : state.sessions.all()) {
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
                                state.restored_until ==
                                    absl::InfiniteDuration());
    put(kSession, id, stored);
  }
  for (const auto& [id, restored] : state.restored) {
    put(kLease, id, restored.lease);
  }
  for (const auto& [id, lease] : state.leases.all()) {
    v1::StoredLease stored;
    stored.set_session_id(lease->session_id);
    stored.set_placement_reason(lease->placement_reason);
    put(kLease, id, stored);
  }
  for (const auto& [id, account] : state.ledger.accounts()) {
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
  for (const std::string& id : state.cordoned) {
    v1::StoredWorker stored;
    stored.set_cordoned(true);
    stored.set_draining(state.draining.contains(id));
    put(kWorker, id, stored);
  }
  for (const auto& [tenant, stop] : state.queue_stops.all()) {
    put(kQueue, tenant, QueueStops::Save(stop));
  }
  for (const LeaseKeys::Key& key : state.keys.keys()) {
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

// That, when it is to be encoded anew.
std::optional<WorkTable::Learnt> LearntToSave(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  // There may be no other time to.
  if (now < state.next_learnt && !state.stopping) return std::nullopt;
  std::optional<WorkTable::Learnt> learnt = state.works.TakeLearnt();
  if (learnt.has_value()) state.next_learnt = now + kLearntInterval;
  return learnt;
}

}  // namespace

std::map<std::string, std::string> Save(ClusterState& state) {
  MutexLock saving_lock(&state.saving_mu);
  std::map<std::string, std::string> saved;
  std::optional<WorkTable::Learnt> learnt;
  {
    MutexLock lock(&state.mu);
    SaveAllElse(state, &saved);
    learnt = LearntToSave(state);
  }
  // Decisions do not wait for it.
  if (learnt.has_value()) state.saved_learnt = EncodeLearnt(*learnt);
  saved.insert(state.saved_learnt.begin(), state.saved_learnt.end());
  return saved;
}

void NoteKept(ClusterState& state, Wakes* wakes) {
  state.keys.NoteKept(state.saves);
  for (const auto& [id, worker] : state.workers.all()) {
    const bool may_settle = std::any_of(
        worker->settling.begin(), worker->settling.end(),
        [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
          return entry.second.revision == 0 && entry.second.save <= state.saves;
        });
    if (may_settle) notices::Touch(worker.get(), wakes);
  }
  state.kept_saves = state.saves;
}

absl::Status Restore(ClusterState& state,
                     const std::map<std::string, std::string>& saved) {
  // All of it is read before anything of it counts.
  std::deque<LeaseKeys::Key> keys;
  DJINN_ASSIGN_OR_RETURN(const auto stored_keys,
                         ReadEach<v1::StoredKey>(saved, kKey));
  for (const auto& [name, stored] : stored_keys) {
    absl::StatusOr<LeaseSigner> signer = LeaseSigner::FromSeed(stored.seed());
    if (!signer.ok()) return Corrupt(kKey + name);
    keys.push_back({*std::move(signer),
                    absl::FromUnixSeconds(stored.since_time().seconds()),
                    /*save=*/0});
  }
  DJINN_ASSIGN_OR_RETURN(const auto tenants,
                         ReadEach<v1::StoredTenant>(saved, kTenant));
  DJINN_ASSIGN_OR_RETURN(const auto accounts,
                         ReadEach<v1::StoredAccount>(saved, kAccount));
  DJINN_ASSIGN_OR_RETURN(const auto workers,
                         ReadEach<v1::StoredWorker>(saved, kWorker));
  DJINN_ASSIGN_OR_RETURN(const auto queues,
                         ReadEach<v1::StoredQueue>(saved, kQueue));
  DJINN_ASSIGN_OR_RETURN(const auto leases,
                         ReadEach<v1::StoredLease>(saved, kLease));
  DJINN_ASSIGN_OR_RETURN(const auto sessions,
                         ReadEach<v1::StoredSession>(saved, kSession));
  WorkTable::Learnt learnt = DecodeLearnt(saved);
  std::erase_if(learnt.programs, [&](const auto& program) {
    return state.tenants->Find(program->tenant) == nullptr;
  });
  MutexLock lock(&state.mu);
  state.first_process = false;
  const absl::Duration now = state.clock->Monotonic();
  state.restored_until =
      now + state.config.lease_valid_for + state.config.lease_grace_period;
  state.works.Restore(std::move(learnt));
  if (!keys.empty()) state.keys.Restore(std::move(keys));
  state.keys.Update(state.clock->Now(), state.saves + 1);
  for (const auto& [name, stored] : tenants) {
    state.ledger.Restore(name, TenantFrom(stored));
  }
  if (!saved.empty()) {
    // What it was granted last may not have been kept: whoever could have a
    // full allowance by a restart would have it again and again.
    for (const auto& [name, tenant] : *state.tenants->all()) {
      if (double* const seconds = state.device_rates.Allowance(name)) {
        *seconds = 0;
      }
      if (double* const bytes = state.byte_rates.Allowance(name)) *bytes = 0;
    }
    for (const auto& [name, stored] : tenants) {
      if (double* const seconds = state.device_rates.Allowance(name)) {
        *seconds -= stored.owed_device_seconds();
      }
      if (double* const bytes = state.byte_rates.Allowance(name)) {
        *bytes -= stored.owed_bytes();
      }
    }
  }
  for (const auto& [id, stored] : accounts) {
    state.ledger.Restore(
        id, CreditLedger::Account{stored.tenant(), stored.worker_id(),
                                  Use::From(stored.granted()),
                                  Use::From(stored.billed()), stored.closed(),
                                  stored.device_time_rated(),
                                  stored.bytes_rated()});
  }
  for (const auto& [id, stored] : workers) {
    if (stored.cordoned()) state.cordoned.insert(id);
    if (stored.draining()) state.draining.insert(id);
  }
  for (const auto& [tenant, stored] : queues) {
    state.queue_stops.Restore(tenant, stored);
  }
  for (const auto& [id, stored] : sessions) {
    // Its workers are told when they report it.
    if (state.tenants->Find(stored.tenant()) == nullptr) continue;
    Session session;
    session.id = id;
    session.tenant = stored.tenant();
    session.program = stored.program();
    session.began_earlier = true;
    session.epoch = stored.session_epoch();
    session.urgency = KnownUrgency(stored.urgency());
    session.open_time = FromProtoTimestamp(stored.open_time());
    session.bound_devices = {stored.bound_devices().begin(),
                             stored.bound_devices().end()};
    session.all_leases_known = stored.all_leases_known();
    if (session.all_leases_known) {
      session.kept = Session::Kept{session.epoch, session.bound_devices};
    }
    // Its client has as long as after any break.
    session.state = v1::SessionInfo::DETACHED;
    session.deadline = now + state.config.session_timeout;
    state.sessions.Add(std::move(session));
  }
  for (const auto& [id, stored] : leases) {
    RestoredLease& restored = state.restored[id];
    restored.lease = stored;
    const Session* const session = state.sessions.Find(stored.session_id());
    const auto tenant =
        session == nullptr ? nullptr : state.tenants->Find(session->tenant);
    if (tenant == nullptr) continue;
    if (const CreditLedger::Account* const account = state.ledger.Find(id)) {
      restored.worker_id = account->worker_id;
    }
    state.awaited[restored.worker_id] |= demand::PhaseBit(state, *session);
    // Two of one virtual device that was on its way count both, for once: what
    // says so is at their workers.
    restored.tenant = tenant->name;
    restored.quota = LeaseQuota(*tenant);
    state.quotas.Take(restored.tenant, restored.quota);
  }
  return absl::OkStatus();
}

std::optional<RestoredLease> TakeRestored(ClusterState& state,
                                          const std::string& lease_id) {
  const auto found = state.restored.find(lease_id);
  if (found == state.restored.end()) return std::nullopt;
  RestoredLease restored = std::move(found->second);
  state.restored.erase(found);
  state.quotas.Give(restored.tenant, restored.quota);
  return restored;
}

void ForgetRestored(ClusterState& state,
                    absl::FunctionRef<bool(const RestoredLease&)> which) {
  std::vector<std::string> ids;
  for (const auto& [id, restored] : state.restored) {
    if (which(restored)) ids.push_back(id);
  }
  for (const std::string& id : ids) TakeRestored(state, id);
}

void GiveUpRestored(ClusterState& state) {
  state.restored_until = absl::InfiniteDuration();
  state.awaited.clear();
  ForgetRestored(state, [](const RestoredLease&) { return true; });
  std::vector<std::string> forgotten;
  for (const auto& [lease_id, account] : state.ledger.accounts()) {
    const Worker* const worker = state.workers.Find(account.worker_id);
    if (state.leases.Find(lease_id) == nullptr && !account.retired &&
        (worker == nullptr || !(worker->closing.Contains(lease_id) ||
                                worker->settling.contains(lease_id)))) {
      forgotten.push_back(lease_id);
    }
  }
  for (const std::string& lease_id : forgotten) {
    state.ledger.Retire(lease_id, state.clock->Monotonic(),
                        credits::RatesOfLease(state, lease_id));
  }
}

}  // namespace djinn::coordinator::persistence
