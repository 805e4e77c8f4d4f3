// Accounts for the device time and bytes that leases use: the ledger of
// accounts, and the allowances of tenants whose credit grows with time.
//
// Invariant: an offered lease has an account until its worker reports no more
// of it and its use is saved. Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_BILLING_H_
#define COORDINATOR_TABLES_BILLING_H_

#include "coordinator/config/credit_ledger.h"
#include "scheduler/quota/rate_budget.h"

namespace djinn::coordinator {

struct Billing {
  CreditLedger ledger;
  // Allowances of device time, in seconds, and of bytes.
  scheduler::RateBudget device_rates{scheduler::RateBudget::kMinSeconds,
                                     scheduler::RateBudget::kMaxSeconds};
  scheduler::RateBudget byte_rates{64 << 10, 1 << 30};
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_BILLING_H_
