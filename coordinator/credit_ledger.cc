#include "coordinator/credit_ledger.h"

#include <algorithm>
#include <utility>

#include "common/net/proto_duration.h"

namespace djinn::coordinator {
namespace {

// A lease gets a sixteenth of the tenant's credit at a time: at most so much,
// so that little is reserved in vain, and at least so much, so that reports
// every few seconds suffice.
constexpr absl::Duration kMinSlice = absl::Seconds(1);
constexpr absl::Duration kMaxSlice = absl::Minutes(1);
constexpr uint64_t kMinSliceBytes = 1 << 20;
constexpr uint64_t kMaxSliceBytes = 1 << 30;
constexpr int kSlices = 16;

absl::Duration Unused(absl::Duration granted, absl::Duration billed) {
  return std::max(absl::ZeroDuration(), granted - billed);
}

uint64_t Unused(uint64_t granted, uint64_t billed) {
  return granted > billed ? granted - billed : 0;
}

Use ReservedBy(const CreditLedger::Account& account) {
  if (account.closed) return {};
  return {Unused(account.granted.device_time, account.billed.device_time),
          Unused(account.granted.bytes, account.billed.bytes)};
}

}  // namespace

Use Use::From(const v1::LeaseUse& use) {
  return {FromProtoDuration(use.device_time()), use.bytes()};
}

void Use::AddTo(v1::LeaseUse* use) const {
  *use->mutable_device_time() =
      ToProtoDuration(FromProtoDuration(use->device_time()) + device_time);
  use->set_bytes(use->bytes() + bytes);
}

template <typename Change>
void CreditLedger::Update(Account* account, Change change) {
  Use& sum = reserved_[account->tenant];
  const Use before = ReservedBy(*account);
  change();
  const Use after = ReservedBy(*account);
  sum.device_time += after.device_time - before.device_time;
  sum.bytes += after.bytes - before.bytes;
}

void CreditLedger::Open(const std::string& lease_id, const std::string& tenant,
                        const std::string& worker_id) {
  const auto [found, added] = accounts_.try_emplace(lease_id);
  Account& account = found->second;
  if (added) {
    account.tenant = tenant;
    account.worker_id = worker_id;
  }
  Update(&account, [&] { account.closed = false; });
}

void CreditLedger::Adopt(const std::string& lease_id,
                         const v1::LeaseCredits& granted) {
  Account& account = accounts_.at(lease_id);
  Update(&account, [&] {
    account.granted.device_time = std::max(
        account.granted.device_time, FromProtoDuration(granted.device_time()));
    account.granted.bytes = std::max(account.granted.bytes, granted.bytes());
  });
}

void CreditLedger::Bill(const std::string& lease_id, const Use& used) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  Update(&account, [&] {
    Use& total = tenants_[account.tenant].used;
    if (used.device_time > account.billed.device_time) {
      total.device_time += used.device_time - account.billed.device_time;
      account.billed.device_time = used.device_time;
    }
    if (used.bytes > account.billed.bytes) {
      total.bytes += used.bytes - account.billed.bytes;
      account.billed.bytes = used.bytes;
    }
  });
}

int64_t CreditLedger::PeriodOf(const CreditLimits& limits, absl::Time now) {
  if (limits.period == absl::InfiniteDuration()) return 0;
  absl::Duration rest;
  return absl::IDivDuration(now - absl::UnixEpoch(), limits.period, &rest);
}

void CreditLedger::EnterPeriod(const CreditLimits& limits, absl::Time now,
                               Tenant* tenant) {
  const int64_t period = PeriodOf(limits, now);
  if (tenant->period == period) return;
  tenant->period = period;
  tenant->before_period = tenant->used;
}

Use CreditLedger::UsedNow(const std::string& tenant, const CreditLimits& limits,
                          absl::Time now) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() ||
      found->second.period != PeriodOf(limits, now)) {
    return {};
  }
  const Tenant& state = found->second;
  return {state.used.device_time - state.before_period.device_time,
          state.used.bytes - state.before_period.bytes};
}

Use CreditLedger::Reserved(const std::string& tenant) const {
  const auto found = reserved_.find(tenant);
  return found == reserved_.end() ? Use() : found->second;
}

bool CreditLedger::TopUp(const std::string& lease_id,
                         const CreditLimits& limits, absl::Time now,
                         std::optional<Rate> rate) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return false;
  Account& account = found->second;
  const bool was_rated = std::exchange(account.rated, rate.has_value());
  if (!limits.limited()) return false;
  EnterPeriod(limits, now, &tenants_[account.tenant]);
  const Use used = UsedNow(account.tenant, limits, now);
  const Use reserved = Reserved(account.tenant);
  const Use before = account.granted;
  Update(&account, [&] {
    absl::Duration slice = kMaxSlice;
    absl::Duration available = absl::InfiniteDuration();
    if (limits.device_time.has_value()) {
      slice = std::clamp(*limits.device_time / kSlices, kMinSlice, kMaxSlice);
      available = *limits.device_time - used.device_time - reserved.device_time;
    }
    if (rate.has_value()) {
      const absl::Duration owed =
          account.billed.device_time - account.granted.device_time;
      if (owed > absl::ZeroDuration()) {
        if (was_rated) *rate->allowance -= owed;
        account.granted.device_time = account.billed.device_time;
      }
      slice = std::min(slice, rate->slice);
      available = std::min(available, *rate->allowance);
    }
    const absl::Duration left =
        Unused(account.granted.device_time, account.billed.device_time);
    if (available != absl::InfiniteDuration() && left < slice / 2 &&
        available > absl::ZeroDuration()) {
      const absl::Duration more = std::min(slice - left, available);
      account.granted.device_time =
          std::max(account.granted.device_time, account.billed.device_time) +
          more;
      if (rate.has_value()) *rate->allowance -= more;
    }
    if (limits.bytes.has_value()) {
      const uint64_t slice =
          std::clamp(*limits.bytes / kSlices, kMinSliceBytes, kMaxSliceBytes);
      const uint64_t left = Unused(account.granted.bytes, account.billed.bytes);
      const uint64_t available =
          Unused(*limits.bytes, used.bytes + reserved.bytes);
      if (left < slice / 2 && available > 0) {
        account.granted.bytes =
            std::max(account.granted.bytes, account.billed.bytes) +
            std::min(slice - left, available);
      }
    }
  });
  return account.granted != before;
}

void CreditLedger::Describe(const std::string& lease_id,
                            const CreditLimits& limits,
                            v1::LeaseClaims* claims) const {
  const Account* const account = Find(lease_id);
  if (account == nullptr || !limits.limited()) return;
  v1::LeaseCredits* const credits = claims->mutable_credits();
  if (limits.device_time.has_value() || limits.rated) {
    *credits->mutable_device_time() =
        ToProtoDuration(account->granted.device_time);
  }
  if (limits.bytes.has_value()) credits->set_bytes(account->granted.bytes);
}

void CreditLedger::Close(const std::string& lease_id) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  Update(&account, [&] { account.closed = true; });
}

void CreditLedger::Settle(const std::string& lease_id) {
  Close(lease_id);
  accounts_.erase(lease_id);
}

void CreditLedger::SettleWorker(const std::string& worker_id) {
  for (auto& [lease_id, account] : accounts_) {
    if (account.worker_id != worker_id) continue;
    Update(&account, [&account = account] { account.closed = true; });
  }
  std::erase_if(accounts_, [&](const auto& entry) {
    return entry.second.worker_id == worker_id;
  });
}

const CreditLedger::Account* CreditLedger::Find(
    const std::string& lease_id) const {
  const auto found = accounts_.find(lease_id);
  return found == accounts_.end() ? nullptr : &found->second;
}

void CreditLedger::Restore(const std::string& tenant, Tenant state) {
  tenants_[tenant] = state;
}

void CreditLedger::Restore(const std::string& lease_id, Account state) {
  Account& account = accounts_[lease_id];
  account.tenant = state.tenant;
  Update(&account, [&] { account = std::move(state); });
}

}  // namespace djinn::coordinator
