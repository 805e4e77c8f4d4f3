// Counts what tenants' leases have used and may use: device time and bytes.
//
// A tenant's credit is handed out to its leases in slices, by issuing them
// again; what a lease has been granted and has not used counts as reserved, and
// comes back when the lease ends, also to the rate that granted it, which is
// owed what was used beyond that, then and later. Workers report what a lease
// has used in all, so a report that is lost or comes twice changes nothing:
// only growth is billed, once, by whoever reports it first.
//
// An account is opened with its lease. It stays, closed, until the worker has
// reported the lease's end: the last steps may still be measured then. Where
// nobody hears of the worker any more it is retired: kept for long, should the
// worker come back after all, so that nothing is billed twice, or not at all.
//
// Not thread-safe; reads no clock.
#ifndef COORDINATOR_CONFIG_CREDIT_LEDGER_H_
#define COORDINATOR_CONFIG_CREDIT_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/lease/phase_times.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator {

// Of a tenant's configuration.
struct CreditLimits {
  // In all, or in each period. Unset: not limited.
  std::optional<absl::Duration> device_time;
  std::optional<uint64_t> bytes;
  // Since 1970; infinite: there are no periods.
  absl::Duration period = absl::InfiniteDuration();
  // Granted as fast as quotas allow.
  bool device_time_rated = false;
  bool bytes_rated = false;

  bool limits_device_time() const {
    return device_time.has_value() || device_time_rated;
  }
  bool limits_bytes() const { return bytes.has_value() || bytes_rated; }
  bool limited() const { return limits_device_time() || limits_bytes(); }
  friend bool operator==(const CreditLimits&, const CreditLimits&) = default;
};

struct Use {
  absl::Duration device_time;
  uint64_t bytes = 0;
  // Of device_time, by phases, in a use; empty in a grant.
  PhaseTimes phases = {};

  static Use From(const v1::LeaseUse& use);
  void AddTo(v1::LeaseUse* use) const;
  friend bool operator==(const Use&, const Use&) = default;
};

class CreditLedger {
 public:
  struct Tenant {
    // Since the ledger began.
    Use used;
    // The part before the current period.
    Use before_period;
    // Counted from 1970, in periods of this length. None is entered that begins
    // before it, whatever the clock says.
    int64_t period = 0;
    // Infinite: there are no periods. Unset: no credits have limited it yet.
    std::optional<absl::Duration> period_length;
  };
  struct Account {
    std::string tenant;
    std::string worker_id;
    // What the lease may use in all; nothing is granted where nothing limits.
    Use granted;
    // The part of its use that was billed.
    Use billed;
    bool closed = false;
    // Granted no faster than quotas allow: what is used beyond that is owed.
    bool device_time_rated = false;
    bool bytes_rated = false;
    // This process awaits no word of it.
    bool retired = false;
  };
  // Retired accounts are kept so long, and the newest so many of them.
  static constexpr absl::Duration kKeepRetired = absl::Hours(24);
  static constexpr size_t kMaxRetired = 4096;
  // The amount that such a quota allows now, in seconds or bytes.
  struct Rate {
    // Shrinks by what is granted, and by what was used beyond it; grows by what
    // comes back.
    double* allowance = nullptr;
    // Of a lease.
    double slice = 0;
    // Returned credit raises the allowance to this at most.
    double most = std::numeric_limits<double>::infinity();
  };
  struct Rates {
    std::optional<Rate> device_time;
    std::optional<Rate> bytes;
  };

  using RatesOf = absl::FunctionRef<Rates(const std::string& tenant)>;

  // Has no effect when the account exists.
  void Open(const std::string& lease_id, const std::string& tenant,
            const std::string& worker_id);
  // The lease has been granted so much before, by another coordinator.
  void Adopt(const std::string& lease_id, const v1::LeaseCredits& granted);
  // The worker says what the lease has used in all. Device time that it does
  // not say a phase of is of none. `rates`: the tenant's, here and below.
  void Bill(const std::string& lease_id, const Use& used, const Rates& rates);
  // Grants another slice when half of the last one is gone, as far as the
  // tenant's credit, and its rates if it has any, go. True when the lease may
  // use more than before.
  bool TopUp(const std::string& lease_id, const CreditLimits& limits,
             absl::Time now, const Rates& rates);
  // Sets what the claims say of credits.
  void Describe(const std::string& lease_id, const CreditLimits& limits,
                v1::LeaseClaims* claims) const;
  // The lease ended here: what is unused returns to the tenant.
  void Close(const std::string& lease_id, const Rates& rates);
  // Nothing more will be reported of it.
  void Settle(const std::string& lease_id, const Rates& rates);
  // Retires the account of an ended lease, or all accounts of a worker, of
  // which no report is expected any more. `now` is monotonic.
  void Retire(const std::string& lease_id, absl::Duration now,
              const Rates& rates);
  void RetireWorker(const std::string& worker_id, absl::Duration now,
                    RatesOf rates_of);
  // Forgets those that were kept for long.
  void ForgetRetired(absl::Duration now);
  // The worker's memory is gone: nothing more will be reported of its leases.
  void SettleWorker(const std::string& worker_id, RatesOf rates_of);

  // Null when there is none.
  const Account* Find(const std::string& lease_id) const;
  // Returns what the tenant used in the current period.
  Use UsedNow(const std::string& tenant, const CreditLimits& limits,
              absl::Time now) const;
  // Returns what its leases were granted and have not used.
  Use Reserved(const std::string& tenant) const;

  // All tenants and accounts, to be saved.
  const std::map<std::string, Tenant>& tenants() const { return tenants_; }
  const std::map<std::string, Account>& accounts() const { return accounts_; }
  void Restore(const std::string& tenant, Tenant state);
  void Restore(const std::string& lease_id, Account state);

 private:
  // Keeps reserved_ true while the account changes.
  template <typename Change>
  void Update(Account* account, Change change);
  // The account is closed: it was granted what it has used, no more or less.
  static void SettleGrants(const Rates& rates, Account* account);
  static int64_t PeriodOf(const CreditLimits& limits, absl::Time now);
  // Credit comes anew with a period that begins when the last one has ended, or
  // later. So where its length changes, what counted in the period that was
  // under way counts on until the next one begins.
  static void EnterPeriod(const CreditLimits& limits, absl::Time now,
                          Tenant* tenant);

  std::map<std::string, Tenant> tenants_;
  std::map<std::string, Account> accounts_;
  // By tenant: of accounts that are open.
  std::map<std::string, Use> reserved_;
  // When, the oldest first; those that were settled or opened again since, too.
  std::deque<std::pair<absl::Duration, std::string>> retired_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CREDIT_LEDGER_H_
