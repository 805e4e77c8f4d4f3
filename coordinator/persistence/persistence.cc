#include "coordinator/persistence/persistence.h"

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
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/persistence/program_memory.h"
#include "coordinator/tables/lease_keys.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/quota_overrides.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/tables/worker_registry.h"
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
constexpr char kQuota[] = "quota/";
constexpr char kKey[] = "key/";
// The program memory is encoded rarely: every report changes it a little, and
// nothing depends on the last change.
constexpr absl::Duration kProgramMemoryInterval = absl::Seconds(10);

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

// Returns by how much the tenant's allowance is below zero.
double OwedOf(const std::string& tenant, scheduler::RateBudget* budget) {
  const double* const allowance = budget->Allowance(tenant);
  return allowance == nullptr ? 0 : std::max(0.0, -*allowance);
}

template <typename Message>
using Named = std::vector<std::pair<std::string, Message>>;

// Returns the name and message of each entry under the prefix.
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

// Adds everything but the program memory to `saved`.
void SaveAllElse(ClusterState& state, std::map<std::string, std::string>* saved)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const auto put = [&](const char* prefix, const std::string& name,
                       const auto& message) {
    (*saved)[absl::StrCat(prefix, name)] = message.SerializeAsString();
  };
  ++state.saving.saves;
  for (const auto& [name, tenant] : state.billing.ledger.tenants()) {
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
    stored.set_owed_device_seconds(OwedOf(name, &state.billing.device_rates));
    stored.set_owed_bytes(OwedOf(name, &state.billing.byte_rates));
    put(kTenant, name, stored);
  }
  for (const auto& [id, session] : state.sessions.all()) {
    v1::StoredSession stored;
    stored.set_tenant(session->tenant);
    stored.set_program(session->program);
    stored.set_session_epoch(session->devices.epoch);
    *stored.mutable_urgency() = session->urgency;
    *stored.mutable_open_time() = ToProtoTimestamp(session->open_time);
    for (const uint32_t device : session->devices.bound) {
      stored.add_bound_devices(device);
    }
    // As long as workers may still report leases of an earlier process, not all
    // leases are known.
    stored.set_all_leases_known(session->devices.all_leases_known &&
                                state.earlier.until ==
                                    absl::InfiniteDuration());
    put(kSession, id, stored);
  }
  for (const auto& [id, restored] : state.earlier.leases) {
    put(kLease, id, restored.lease);
  }
  for (const auto& [id, lease] : state.leases.all()) {
    v1::StoredLease stored;
    stored.set_session_id(lease->session_id);
    stored.set_placement_reason(lease->placement_reason);
    put(kLease, id, stored);
  }
  for (const auto& [id, account] : state.billing.ledger.accounts()) {
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
  for (const std::string& id : state.moves.cordoned) {
    v1::StoredWorker stored;
    stored.set_cordoned(true);
    stored.set_draining(state.moves.draining.contains(id));
    put(kWorker, id, stored);
  }
  for (const auto& [tenant, stop] : state.queue.stops.all()) {
    put(kQueue, tenant, QueueStops::Save(stop));
  }
  for (const auto& [name, stored] : state.quotas.overrides.Save()) {
    put(kQuota, name, stored);
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

// Returns the program memory when it is due to be encoded again.
std::optional<WorkTable::ProgramMemory> ProgramMemoryToSave(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  // A cluster that stops saves for the last time.
  if (now < state.saving.next_program_memory && !state.stopping) {
    return std::nullopt;
  }
  std::optional<WorkTable::ProgramMemory> memory =
      state.known.works.TakeProgramMemory();
  if (memory.has_value()) {
    state.saving.next_program_memory = now + kProgramMemoryInterval;
  }
  return memory;
}

// Everything that an earlier process saved, decoded.
struct Saved {
  std::deque<LeaseKeys::Key> keys;
  Named<v1::StoredTenant> tenants;
  Named<v1::StoredAccount> accounts;
  Named<v1::StoredWorker> workers;
  Named<v1::StoredQueue> queues;
  QuotaOverrides quotas;
  Named<v1::StoredLease> leases;
  Named<v1::StoredSession> sessions;
  WorkTable::ProgramMemory memory;
};

absl::StatusOr<Saved> Read(const std::map<std::string, std::string>& state) {
  Saved saved;
  DJINN_ASSIGN_OR_RETURN(const auto keys, ReadEach<v1::StoredKey>(state, kKey));
  for (const auto& [name, stored] : keys) {
    absl::StatusOr<LeaseSigner> signer = LeaseSigner::FromSeed(stored.seed());
    if (!signer.ok()) return Corrupt(kKey + name);
    saved.keys.push_back({*std::move(signer),
                          absl::FromUnixSeconds(stored.since_time().seconds()),
                          /*save=*/0});
  }
  DJINN_ASSIGN_OR_RETURN(saved.tenants,
                         ReadEach<v1::StoredTenant>(state, kTenant));
  DJINN_ASSIGN_OR_RETURN(saved.accounts,
                         ReadEach<v1::StoredAccount>(state, kAccount));
  DJINN_ASSIGN_OR_RETURN(saved.workers,
                         ReadEach<v1::StoredWorker>(state, kWorker));
  DJINN_ASSIGN_OR_RETURN(saved.queues,
                         ReadEach<v1::StoredQueue>(state, kQueue));
  DJINN_ASSIGN_OR_RETURN(const auto quotas,
                         ReadEach<v1::StoredQuota>(state, kQuota));
  for (const auto& [name, stored] : quotas) {
    if (!saved.quotas.Restore(name, stored).ok()) return Corrupt(kQuota + name);
  }
  DJINN_ASSIGN_OR_RETURN(saved.leases,
                         ReadEach<v1::StoredLease>(state, kLease));
  DJINN_ASSIGN_OR_RETURN(saved.sessions,
                         ReadEach<v1::StoredSession>(state, kSession));
  saved.memory = DecodeProgramMemory(state);
  return saved;
}

// Puts the quotas that operators set into force.
void RestoreQuotas(ClusterState& state, QuotaOverrides quotas)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  state.quotas.overrides = std::move(quotas);
  state.tenants->Replace(
      state.quotas.overrides.Over(state.tenants->Configured()));
  quota::Configure(state);
}

// Sets the allowances of tenants with rates to zero, less what they owe. The
// earlier process may not have saved what it granted last, and a full allowance
// after every restart would be granted again and again.
void RestoreAllowances(ClusterState& state,
                       const Named<v1::StoredTenant>& tenants)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const auto& [name, tenant] : *state.tenants->all()) {
    if (double* const seconds = state.billing.device_rates.Allowance(name)) {
      *seconds = 0;
    }
    if (double* const bytes = state.billing.byte_rates.Allowance(name)) {
      *bytes = 0;
    }
  }
  for (const auto& [name, stored] : tenants) {
    if (double* const seconds = state.billing.device_rates.Allowance(name)) {
      *seconds -= stored.owed_device_seconds();
    }
    if (double* const bytes = state.billing.byte_rates.Allowance(name)) {
      *bytes -= stored.owed_bytes();
    }
  }
}

void RestoreAccounts(ClusterState& state, const Saved& saved)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const auto& [name, stored] : saved.tenants) {
    state.billing.ledger.Restore(name, TenantFrom(stored));
  }
  for (const auto& [id, stored] : saved.accounts) {
    state.billing.ledger.Restore(
        id, CreditLedger::Account{stored.tenant(), stored.worker_id(),
                                  Use::From(stored.granted()),
                                  Use::From(stored.billed()), stored.closed(),
                                  stored.device_time_rated(),
                                  stored.bytes_rated()});
  }
}

void RestoreSession(ClusterState& state, const std::string& id,
                    const v1::StoredSession& stored)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // Leaves out a session whose tenant is not configured. Its workers are told
  // to drop it when they report it.
  if (state.tenants->Find(stored.tenant()) == nullptr) return;
  Session session;
  session.id = id;
  session.tenant = stored.tenant();
  session.program = stored.program();
  session.began_earlier = true;
  session.devices.epoch = stored.session_epoch();
  session.urgency = KnownUrgency(stored.urgency());
  session.open_time = FromProtoTimestamp(stored.open_time());
  session.devices.bound = {stored.bound_devices().begin(),
                           stored.bound_devices().end()};
  session.devices.all_leases_known = stored.all_leases_known();
  if (session.devices.all_leases_known) {
    session.devices.kept =
        Session::Kept{session.devices.epoch, session.devices.bound};
  }
  // The client has as much time to attach as after any break.
  session.state = v1::SessionInfo::DETACHED;
  session.deadline = state.clock->Monotonic() + state.config.session_timeout;
  state.sessions.Add(std::move(session));
}

void RestoreLease(ClusterState& state, const std::string& id,
                  const v1::StoredLease& stored)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  RestoredLease& restored = state.earlier.leases[id];
  restored.lease = stored;
  const Session* const session = state.sessions.Find(stored.session_id());
  const auto tenant =
      session == nullptr ? nullptr : state.tenants->Find(session->tenant);
  if (tenant == nullptr) return;
  if (const CreditLedger::Account* const account =
          state.billing.ledger.Find(id)) {
    restored.worker_id = account->worker_id;
  }
  state.earlier.workers[restored.worker_id] |=
      demand::PhaseBit(state, *session);
  // If the virtual device was migrating, both of its leases hold quota, because
  // only their workers know of the migration.
  restored.tenant = tenant->name;
  restored.quota = LeaseQuota(*tenant);
  state.quotas.tree.Take(restored.tenant, restored.quota);
}

}  // namespace

std::map<std::string, std::string> Save(ClusterState& state) {
  MutexLock saving_lock(&state.saving_mu);
  std::map<std::string, std::string> saved;
  std::optional<WorkTable::ProgramMemory> memory;
  {
    MutexLock lock(&state.mu);
    SaveAllElse(state, &saved);
    memory = ProgramMemoryToSave(state);
  }
  // Encodes without the lock, so that placement does not wait.
  if (memory.has_value()) {
    state.saved_program_memory = EncodeProgramMemory(*memory);
  }
  saved.insert(state.saved_program_memory.begin(),
               state.saved_program_memory.end());
  return saved;
}

void NoteKept(ClusterState& state) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  state.keys.NoteKept(state.saving.saves);
  for (const auto& [id, worker] : state.workers.all()) {
    const bool may_settle = std::any_of(
        worker->ends.settling.begin(), worker->ends.settling.end(),
        [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
          return entry.second.revision == 0 &&
                 entry.second.save <= state.saving.saves;
        });
    if (may_settle) notifications::Touch(worker.get(), &wakes);
  }
  state.saving.kept = state.saving.saves;
}

absl::Status Restore(ClusterState& state,
                     const std::map<std::string, std::string>& entries) {
  // Reads everything before it changes anything.
  DJINN_ASSIGN_OR_RETURN(Saved saved, Read(entries));
  std::erase_if(saved.memory.programs, [&](const auto& program) {
    return state.tenants->Find(program->tenant) == nullptr;
  });
  MutexLock lock(&state.mu);
  state.earlier.none = false;
  state.earlier.until = state.clock->Monotonic() +
                        state.config.lease_valid_for +
                        state.config.lease_grace_period;
  state.known.works.Restore(std::move(saved.memory));
  if (!saved.keys.empty()) state.keys.Restore(std::move(saved.keys));
  state.keys.Update(state.clock->Now(), state.saving.saves + 1);
  if (!saved.quotas.empty()) RestoreQuotas(state, std::move(saved.quotas));
  if (!entries.empty()) RestoreAllowances(state, saved.tenants);
  RestoreAccounts(state, saved);
  for (const auto& [id, stored] : saved.workers) {
    if (stored.cordoned()) state.moves.cordoned.insert(id);
    if (stored.draining()) state.moves.draining.insert(id);
  }
  for (const auto& [tenant, stored] : saved.queues) {
    state.queue.stops.Restore(tenant, stored);
  }
  for (const auto& [id, stored] : saved.sessions) {
    RestoreSession(state, id, stored);
  }
  for (const auto& [id, stored] : saved.leases) RestoreLease(state, id, stored);
  return absl::OkStatus();
}

}  // namespace djinn::coordinator::persistence
