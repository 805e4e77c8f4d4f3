#include "coordinator/config/credit_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/proto_duration.h"

namespace djinn::coordinator {
namespace {

// Bounds of a slice. A lease gets a sixteenth of the tenant's credit at a time:
// not more than the maximum, so that little is reserved in vain, and not less
// than the minimum, so that reports every few seconds suffice.
constexpr absl::Duration kMinSlice = absl::Seconds(1);
constexpr absl::Duration kMaxSlice = absl::Minutes(1);
constexpr int64_t kMinSliceBytes = 1 << 20;
constexpr int64_t kMaxSliceBytes = 1 << 30;
constexpr int kSlices = 16;

absl::Duration Unused(absl::Duration granted, absl::Duration billed) {
  return std::max(absl::ZeroDuration(), granted - billed);
}

uint64_t Unused(uint64_t granted, uint64_t billed) {
  return granted > billed ? granted - billed : 0;
}

double Units(absl::Duration time) { return absl::ToDoubleSeconds(time); }
double Units(int64_t bytes) { return static_cast<double>(bytes); }
template <typename Amount>
Amount FromUnits(double units);
template <>
absl::Duration FromUnits(double units) {
  return absl::Seconds(units);
}
template <>
int64_t FromUnits(double units) {
  return static_cast<int64_t>(units);
}

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(
      std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
}

// The state of one resource for a lease.
template <typename Amount>
struct Purse {
  // The tenant's credit. If unset, only the rate limits it, if there is one.
  std::optional<Amount> limit;
  // The part of it that the tenant's leases have used or were granted.
  Amount spoken_for{};
  // Use of the lease.
  Amount billed{};
  Amount min_slice{};
  Amount max_slice{};
  std::optional<CreditLedger::Rate> rate;
  bool was_rated = false;
};

// Returns the lease's new total grant.
template <typename Amount>
Amount GrantMore(Amount granted, const Purse<Amount>& purse) {
  if (!purse.limit.has_value() && !purse.rate.has_value()) return granted;
  Amount slice = purse.max_slice;
  if (purse.limit.has_value()) {
    slice =
        std::clamp(*purse.limit / kSlices, purse.min_slice, purse.max_slice);
  }
  if (purse.rate.has_value()) {
    const Amount owed = purse.billed - granted;
    if (owed > Amount()) {
      if (purse.was_rated) *purse.rate->allowance -= Units(owed);
      granted = purse.billed;
    }
    slice = std::min(slice, FromUnits<Amount>(purse.rate->slice));
  }
  const Amount left = std::max(Amount(), granted - purse.billed);
  if (left >= slice / 2) return granted;
  Amount more = slice - left;
  if (purse.limit.has_value()) {
    more = std::min(more, *purse.limit - purse.spoken_for);
  }
  if (purse.rate.has_value()) {
    more = std::min(more, FromUnits<Amount>(*purse.rate->allowance));
  }
  if (more <= Amount()) return granted;
  if (purse.rate.has_value()) *purse.rate->allowance -= Units(more);
  return std::max(granted, purse.billed) + more;
}

// Settles a closed account with the rate: an unused grant returns to it, and
// use beyond the grant is subtracted.
template <typename Amount>
Amount Regrant(Amount granted, Amount billed,
               const std::optional<CreditLedger::Rate>& rate) {
  if (!rate.has_value()) return granted;
  double& allowance = *rate->allowance;
  const double back = Units(granted - billed);
  allowance = back > 0
                  ? std::max(allowance, std::min(allowance + back, rate->most))
                  : allowance + back;
  return billed;
}

Use ReservedBy(const CreditLedger::Account& account) {
  if (account.closed) return {};
  return {Unused(account.granted.device_time, account.billed.device_time),
          Unused(account.granted.bytes, account.billed.bytes)};
}

}  // namespace

Use Use::From(const v1::LeaseUse& use) {
  return {FromProtoDuration(use.device_time()), use.bytes(),
          PhaseTimes(use.phases())};
}

void Use::AddTo(v1::LeaseUse* use) const {
  *use->mutable_device_time() =
      ToProtoDuration(FromProtoDuration(use->device_time()) + device_time);
  use->set_bytes(use->bytes() + bytes);
  PhaseTimes sum(use->phases());
  sum += phases;
  use->clear_phases();
  sum.Describe(use->mutable_phases());
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
  account.retired = false;
}

void CreditLedger::Adopt(const std::string& lease_id,
                         const v1::LeaseCredits& granted) {
  Account& account = accounts_.at(lease_id);
  Update(&account, [&] {
    account.granted.device_time = std::max(
        account.granted.device_time, FromProtoDuration(granted.device_time()));
    account.granted.bytes = std::max(account.granted.bytes, granted.bytes());
  });
  // Use beyond the grants is owed if there is a rate.
  if (granted.has_device_time()) account.device_time_rated = true;
  if (granted.has_bytes()) account.bytes_rated = true;
}

void CreditLedger::SettleGrants(const Rates& rates, Account* account) {
  if (account->device_time_rated) {
    account->granted.device_time =
        Regrant(account->granted.device_time, account->billed.device_time,
                rates.device_time);
  }
  if (account->bytes_rated) {
    account->granted.bytes = static_cast<uint64_t>(
        Regrant(Signed(account->granted.bytes), Signed(account->billed.bytes),
                rates.bytes));
  }
}

void CreditLedger::Bill(const std::string& lease_id, const Use& used,
                        const Rates& rates) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  Update(&account, [&] {
    Use& total = tenants_[account.tenant].used;
    if (used.device_time > account.billed.device_time) {
      const absl::Duration more = used.device_time - account.billed.device_time;
      const PhaseTimes phases =
          used.phases.GrownSince(account.billed.phases, more);
      total.device_time += more;
      total.phases += phases;
      account.billed.device_time = used.device_time;
      account.billed.phases += phases;
    }
    if (used.bytes > account.billed.bytes) {
      total.bytes += used.bytes - account.billed.bytes;
      account.billed.bytes = used.bytes;
    }
    if (account.closed) SettleGrants(rates, &account);
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
  const auto renew = [&] { tenant->before_period = tenant->used; };
  if (!tenant->period_length.has_value()) {
    if (period > tenant->period) renew();
    tenant->period = period;
  } else if (*tenant->period_length == limits.period) {
    // A clock that steps back enters no earlier period.
    if (period > tenant->period) {
      renew();
      tenant->period = period;
    }
  } else {
    const absl::Duration before = *tenant->period_length;
    const bool has_ended =
        before != absl::InfiniteDuration() &&
        limits.period != absl::InfiniteDuration() &&
        (tenant->period + 1) * before <= period * limits.period;
    if (has_ended) renew();
    tenant->period = period;
  }
  tenant->period_length = limits.period;
}

Use CreditLedger::UsedNow(const std::string& tenant, const CreditLimits& limits,
                          absl::Time now) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return {};
  Tenant state = found->second;
  EnterPeriod(limits, now, &state);
  Use used = state.used;
  used.device_time -= state.before_period.device_time;
  used.bytes -= state.before_period.bytes;
  used.phases -= state.before_period.phases;
  return used;
}

Use CreditLedger::Reserved(const std::string& tenant) const {
  const auto found = reserved_.find(tenant);
  return found == reserved_.end() ? Use() : found->second;
}

bool CreditLedger::TopUp(const std::string& lease_id,
                         const CreditLimits& limits, absl::Time now,
                         const Rates& rates) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return false;
  Account& account = found->second;
  const bool time_was_rated =
      std::exchange(account.device_time_rated, rates.device_time.has_value());
  const bool bytes_were_rated =
      std::exchange(account.bytes_rated, rates.bytes.has_value());
  if (!limits.limited()) return false;
  // Rates have no periods.
  if (limits.device_time.has_value() || limits.bytes.has_value()) {
    EnterPeriod(limits, now, &tenants_[account.tenant]);
  }
  const Use used = UsedNow(account.tenant, limits, now);
  const Use reserved = Reserved(account.tenant);
  const Use before = account.granted;
  Update(&account, [&] {
    account.granted.device_time =
        GrantMore(account.granted.device_time,
                  Purse<absl::Duration>{
                      .limit = limits.device_time,
                      .spoken_for = used.device_time + reserved.device_time,
                      .billed = account.billed.device_time,
                      .min_slice = kMinSlice,
                      .max_slice = kMaxSlice,
                      .rate = rates.device_time,
                      .was_rated = time_was_rated});
    account.granted.bytes = static_cast<uint64_t>(GrantMore(
        Signed(account.granted.bytes),
        Purse<int64_t>{.limit = limits.bytes.has_value()
                                    ? std::optional(Signed(*limits.bytes))
                                    : std::nullopt,
                       .spoken_for = Signed(used.bytes + reserved.bytes),
                       .billed = Signed(account.billed.bytes),
                       .min_slice = kMinSliceBytes,
                       .max_slice = kMaxSliceBytes,
                       .rate = rates.bytes,
                       .was_rated = bytes_were_rated}));
  });
  return account.granted != before;
}

void CreditLedger::Describe(const std::string& lease_id,
                            const CreditLimits& limits,
                            v1::LeaseClaims* claims) const {
  const Account* const account = Find(lease_id);
  if (account == nullptr || !limits.limited()) return;
  v1::LeaseCredits* const credits = claims->mutable_credits();
  if (limits.limits_device_time()) {
    *credits->mutable_device_time() =
        ToProtoDuration(account->granted.device_time);
  }
  if (limits.limits_bytes()) credits->set_bytes(account->granted.bytes);
}

void CreditLedger::Close(const std::string& lease_id, const Rates& rates) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  Update(&account, [&] {
    account.closed = true;
    SettleGrants(rates, &account);
  });
}

void CreditLedger::Settle(const std::string& lease_id, const Rates& rates) {
  Close(lease_id, rates);
  accounts_.erase(lease_id);
}

void CreditLedger::Retire(const std::string& lease_id, absl::Duration now,
                          const Rates& rates) {
  const auto found = accounts_.find(lease_id);
  if (found == accounts_.end() || found->second.retired) return;
  Close(lease_id, rates);
  found->second.retired = true;
  retired_.emplace_back(now, lease_id);
  ForgetRetired(now);
}

void CreditLedger::RetireWorker(const std::string& worker_id,
                                absl::Duration now, RatesOf rates_of) {
  std::vector<std::pair<std::string, std::string>> leases;
  for (const auto& [lease_id, account] : accounts_) {
    if (account.worker_id != worker_id) continue;
    leases.emplace_back(lease_id, account.tenant);
  }
  for (const auto& [lease_id, tenant] : leases) {
    Retire(lease_id, now, rates_of(tenant));
  }
}

void CreditLedger::ForgetRetired(absl::Duration now) {
  while (!retired_.empty() && (retired_.size() > kMaxRetired ||
                               now - retired_.front().first > kKeepRetired)) {
    const auto found = accounts_.find(retired_.front().second);
    if (found != accounts_.end() && found->second.retired) {
      accounts_.erase(found);
    }
    retired_.pop_front();
  }
}

void CreditLedger::SettleWorker(const std::string& worker_id,
                                RatesOf rates_of) {
  for (const auto& [lease_id, account] : accounts_) {
    if (account.worker_id != worker_id) continue;
    Close(lease_id, rates_of(account.tenant));
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
  tenants_[tenant] = std::move(state);
}

void CreditLedger::Restore(const std::string& lease_id, Account state) {
  Account& account = accounts_[lease_id];
  account.tenant = state.tenant;
  Update(&account, [&] { account = std::move(state); });
}

}  // namespace djinn::coordinator
