// Grants device time and bytes to leases by their tenants' credits and rates,
// and bills what they use.
#ifndef COORDINATOR_CLUSTER_LEASES_CREDITS_H_
#define COORDINATOR_CLUSTER_LEASES_CREDITS_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/waker.h"

namespace djinn::coordinator::credits {

// The lease is new: opens its account, with what it is granted first.
void Open(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The lease ends: its account stays until its worker has told of all its use.
void Close(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the device time that the lease has used.
void Bill(ClusterState& state, const std::string& lease_id, const Use& used)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The device time that it has used, by its worker's reports.
absl::Duration DeviceTimeOf(const ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns how fast the tenant's quotas let its leases use device time and
// bytes.
CreditLedger::Rates RatesOf(ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the rates of the tenant that pays for the lease; none when no tenant
// does.
CreditLedger::Rates RatesOfLease(ClusterState& state,
                                 const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Nothing more will be reported of its leases.
void SettleWorker(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Retires the accounts of a worker that is forgotten: should it come back, what
// was billed is known.
void RetireWorker(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Grants the lease more, as far as credit and rate go. Whether there was more.
bool TopUp(ClusterState& state, const std::string& lease_id,
           const Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Time has passed: grants more to leases that wait for their tenants' rates.
void AdvanceRates(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::credits

#endif  // COORDINATOR_CLUSTER_LEASES_CREDITS_H_
