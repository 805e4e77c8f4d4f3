// What outlives the process.
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

constexpr char kTenant[] = "tenant/";
constexpr char kSession[] = "session/";
constexpr char kLease[] = "lease/";
constexpr char kAccount[] = "account/";
constexpr char kWorker[] = "worker/";
constexpr char kKey[] = "key/";

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(absl::ToUnixSeconds(time));
  return timestamp;
}

absl::Status Corrupt(absl::string_view key) {
  return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                   absl::StrCat("\"", key, "\" cannot be read"));
}

// Calls `take` with each entry's name and message under the prefix.
template <typename Message, typename Take>
absl::Status ReadEach(const std::map<std::string, std::string>& state,
                      absl::string_view prefix, Take take) {
  for (auto entry = state.lower_bound(std::string(prefix));
       entry != state.end() && absl::StartsWith(entry->first, prefix);
       ++entry) {
    Message message;
    if (!message.ParseFromString(entry->second)) return Corrupt(entry->first);
    DJINN_RETURN_IF_ERROR(
        take(std::string(absl::StripPrefix(entry->first, prefix)), message));
  }
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, std::string> Cluster::Save() {
  std::map<std::string, std::string> state;
  const auto put = [&](const char* prefix, const std::string& name,
                       const auto& message) {
    state[absl::StrCat(prefix, name)] = message.SerializeAsString();
  };
  MutexLock lock(&mu_);
  for (const auto& [name, tenant] : ledger_.tenants()) {
    v1::StoredTenant stored;
    tenant.used.AddTo(stored.mutable_used());
    tenant.before_period.AddTo(stored.mutable_used_before_period());
    stored.set_period(tenant.period);
    put(kTenant, name, stored);
  }
  for (const auto& [id, session] : sessions_.all()) {
    v1::StoredSession stored;
    stored.set_tenant(session->tenant);
    stored.set_program(session->program);
    stored.set_session_epoch(session->epoch);
    *stored.mutable_urgency() = session->urgency;
    *stored.mutable_open_time() = ToTimestamp(session->open_time);
    for (const uint32_t device : session->bound_devices) {
      stored.add_bound_devices(device);
    }
    put(kSession, id, stored);
  }
  for (const auto& [id, stored] : restored_) put(kLease, id, stored);
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
    put(kAccount, id, stored);
  }
  for (const std::string& id : cordoned_) {
    v1::StoredWorker stored;
    stored.set_cordoned(true);
    stored.set_draining(draining_.contains(id));
    put(kWorker, id, stored);
  }
  for (const LeaseKeys::Key& key : keys_.keys()) {
    v1::StoredKey stored;
    stored.set_seed(key.signer.seed());
    *stored.mutable_since_time() = ToTimestamp(key.since);
    put(kKey,
        absl::StrCat(
            absl::Dec(absl::ToUnixSeconds(key.since), absl::kZeroPad20), "/",
            key.signer.id()),
        stored);
  }
  return state;
}

absl::Status Cluster::Restore(const std::map<std::string, std::string>& state) {
  std::deque<LeaseKeys::Key> keys;
  DJINN_RETURN_IF_ERROR(ReadEach<v1::StoredKey>(
      state, kKey, [&](const std::string& name, const v1::StoredKey& stored) {
        absl::StatusOr<LeaseSigner> signer =
            LeaseSigner::FromSeed(stored.seed());
        if (!signer.ok()) return Corrupt(kKey + name);
        keys.push_back({*std::move(signer),
                        absl::FromUnixSeconds(stored.since_time().seconds())});
        return absl::OkStatus();
      }));
  MutexLock lock(&mu_);
  first_process_ = false;
  const absl::Duration now = clock_->Monotonic();
  restored_until_ = now + config_.lease_valid_for + config_.lease_grace_period;
  if (!keys.empty()) keys_.Restore(std::move(keys));
  keys_.Update(clock_->Now());
  DJINN_RETURN_IF_ERROR(ReadEach<v1::StoredTenant>(
      state, kTenant,
      [&](const std::string& name, const v1::StoredTenant& stored) {
        ledger_.Restore(
            name, CreditLedger::Tenant{Use::From(stored.used()),
                                       Use::From(stored.used_before_period()),
                                       stored.period()});
        return absl::OkStatus();
      }));
  DJINN_RETURN_IF_ERROR(ReadEach<v1::StoredAccount>(
      state, kAccount,
      [&](const std::string& id, const v1::StoredAccount& stored) {
        ledger_.Restore(id, CreditLedger::Account{
                                stored.tenant(), stored.worker_id(),
                                Use::From(stored.granted()),
                                Use::From(stored.billed()), stored.closed()});
        return absl::OkStatus();
      }));
  DJINN_RETURN_IF_ERROR(ReadEach<v1::StoredWorker>(
      state, kWorker,
      [&](const std::string& id, const v1::StoredWorker& stored) {
        if (stored.cordoned()) cordoned_.insert(id);
        if (stored.draining()) draining_.insert(id);
        return absl::OkStatus();
      }));
  DJINN_RETURN_IF_ERROR(ReadEach<v1::StoredLease>(
      state, kLease, [&](const std::string& id, const v1::StoredLease& stored) {
        restored_[id] = stored;
        return absl::OkStatus();
      }));
  return ReadEach<v1::StoredSession>(
      state, kSession,
      [&](const std::string& id, const v1::StoredSession& stored) {
        // Its workers are told when they report it.
        if (tenants_->Find(stored.tenant()) == nullptr) return absl::OkStatus();
        Session session;
        session.id = id;
        session.tenant = stored.tenant();
        session.program = stored.program();
        session.epoch = stored.session_epoch();
        session.urgency = stored.urgency();
        session.open_time = absl::FromUnixSeconds(stored.open_time().seconds());
        session.bound_devices = {stored.bound_devices().begin(),
                                 stored.bound_devices().end()};
        // Its client has as long as after any break.
        session.state = v1::SessionInfo::DETACHED;
        session.deadline = now + config_.session_timeout;
        sessions_.Add(std::move(session));
        return absl::OkStatus();
      });
}

void Cluster::SettleForgotten() {
  restored_until_ = absl::InfiniteDuration();
  restored_.clear();
  std::vector<std::string> forgotten;
  for (const auto& [lease_id, account] : ledger_.accounts()) {
    const Worker* const worker = workers_.Find(account.worker_id);
    if (leases_.Find(lease_id) == nullptr &&
        (worker == nullptr || !worker->closing.contains(lease_id))) {
      forgotten.push_back(lease_id);
    }
  }
  for (const std::string& lease_id : forgotten) ledger_.Settle(lease_id);
}

}  // namespace djinn::coordinator
