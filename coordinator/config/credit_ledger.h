// Counts the device time and bytes that tenants' leases have used and may use.
//
// A tenant's credit is granted to its leases in slices, each with a new lease
// revision. The part of a grant that a lease has not used counts as reserved.
// When the lease ends, that part returns to the tenant and to the rate that
// granted it. Use beyond the grants is owed to that rate, even if it is
// reported after the end. Workers report the total use of each lease, so a lost
// or repeated report changes nothing: only growth is billed, once.
//
// An account is opened with its lease. After the lease ends, the account stays,
// closed, until the worker has reported the end, because the last steps may
// still be measured then. An account for which no report is expected any more
// is retired: it is kept for long in case the worker returns, so that its use
// is billed exactly once.
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

// The credits in a tenant's configuration.
struct CreditLimits {
  // Amounts in total, or in each period. Unset means unlimited.
  std::optional<absl::Duration> device_time;
  std::optional<uint64_t> bytes;
  // Length of periods, counted from 1970; infinite means that there are none.
  absl::Duration period = absl::InfiniteDuration();
  // True when quotas limit the rate at which credit is granted.
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
  // Parts of device_time by phase; empty in a grant.
  PhaseTimes phases = {};

  static Use From(const v1::LeaseUse& use);
  void AddTo(v1::LeaseUse* use) const;
  friend bool operator==(const Use&, const Use&) = default;
};

class CreditLedger {
 public:
  struct Tenant {
    // Use since the ledger began.
    Use used;
    // The part of `used` from before the current period.
    Use before_period;
    // Number of the current period, counted from 1970 in periods of this
    // length. It never decreases while the length stays, even if the clock
    // steps back.
    int64_t period = 0;
    // Infinite when there are no periods. Unset while no credits have limited
    // the tenant yet.
    std::optional<absl::Duration> period_length;
  };
  struct Account {
    std::string tenant;
    std::string worker_id;
    // Total that the lease may use; nothing is granted where nothing limits it.
    Use granted;
    // The part of the lease's use that was billed.
    Use billed;
    bool closed = false;
    // True when quotas limit the rate of grants; use beyond the grants is then
    // owed.
    bool device_time_rated = false;
    bool bytes_rated = false;
    // True when this process expects no further report of the lease.
    bool retired = false;
  };
  // Retention of retired accounts, and the number of the newest that are kept.
  static constexpr absl::Duration kKeepRetired = absl::Hours(24);
  static constexpr size_t kMaxRetired = 4096;
  // A tenant's allowance from a quota that is a rate, in seconds or bytes.
  struct Rate {
    // Shrinks by grants and by use beyond them; grows by returned credit.
    double* allowance = nullptr;
    // Amount that one lease is granted at a time.
    double slice = 0;
    // Returned credit raises the allowance to this at most.
    double most = std::numeric_limits<double>::infinity();
  };
  struct Rates {
    std::optional<Rate> device_time;
    std::optional<Rate> bytes;
  };

  using RatesOf = absl::FunctionRef<Rates(const std::string& tenant)>;

  // Opens an account. Has no effect when it exists.
  void Open(const std::string& lease_id, const std::string& tenant,
            const std::string& worker_id);
  // Notes what another coordinator granted the lease before.
  void Adopt(const std::string& lease_id, const v1::LeaseCredits& granted);
  // Bills the total use that the worker reports for the lease. Device time
  // without a reported phase has no phase. `rates` are the tenant's, here and
  // below.
  void Bill(const std::string& lease_id, const Use& used, const Rates& rates);
  // Grants another slice when less than half of the last one is left, as far as
  // the tenant's credit and rates allow. Returns true when the grant has
  // changed.
  bool TopUp(const std::string& lease_id, const CreditLimits& limits,
             absl::Time now, const Rates& rates);
  // Sets the claims about credits.
  void Describe(const std::string& lease_id, const CreditLimits& limits,
                v1::LeaseClaims* claims) const;
  // Closes the account of a lease that has ended here; the unused part of its
  // grants returns to the tenant.
  void Close(const std::string& lease_id, const Rates& rates);
  // Removes an account of which no more will be reported.
  void Settle(const std::string& lease_id, const Rates& rates);
  // Retire the account of an ended lease, or all accounts of a worker, for
  // which no report is expected any more. `now` is monotonic.
  void Retire(const std::string& lease_id, absl::Duration now,
              const Rates& rates);
  void RetireWorker(const std::string& worker_id, absl::Duration now,
                    RatesOf rates_of);
  // Removes retired accounts that were kept for long enough.
  void ForgetRetired(absl::Duration now);
  // Removes the accounts of a worker whose memory is lost, because no more will
  // be reported of its leases.
  void SettleWorker(const std::string& worker_id, RatesOf rates_of);

  // Returns null when there is no such account.
  const Account* Find(const std::string& lease_id) const;
  // Returns the tenant's use in the current period.
  Use UsedNow(const std::string& tenant, const CreditLimits& limits,
              absl::Time now) const;
  // Returns the part of its leases' grants that they have not used.
  Use Reserved(const std::string& tenant) const;

  // Return all tenants and accounts, for saving.
  const std::map<std::string, Tenant>& tenants() const { return tenants_; }
  const std::map<std::string, Account>& accounts() const { return accounts_; }
  void Restore(const std::string& tenant, Tenant state);
  void Restore(const std::string& lease_id, Account state);

 private:
  // Changes the account and keeps reserved_ consistent.
  template <typename Change>
  void Update(Account* account, Change change);
  // Sets the grants of a closed account to its use, and settles the difference
  // with the rates.
  static void SettleGrants(const Rates& rates, Account* account);
  static int64_t PeriodOf(const CreditLimits& limits, absl::Time now);
  // Enters the period of `now`. A new period renews the credit, and never
  // begins before the last one has ended. If the length of periods changes, the
  // use in the current period therefore counts until the next period begins.
  static void EnterPeriod(const CreditLimits& limits, absl::Time now,
                          Tenant* tenant);

  std::map<std::string, Tenant> tenants_;
  std::map<std::string, Account> accounts_;
  // Unused grants of open accounts, by tenant.
  std::map<std::string, Use> reserved_;
  // Times and lease ids of retirements, the oldest first. May contain accounts
  // that were settled or opened again since.
  std::deque<std::pair<absl::Duration, std::string>> retired_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CREDIT_LEDGER_H_
