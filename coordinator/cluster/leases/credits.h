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

// Opens the new lease's account, and grants its first device time and bytes if
// its tenant is configured.
void Open(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Closes the ended lease's account. The account is settled when the worker has
// reported the lease's final use. It is settled at once if the worker is gone
// or the lease was never listed to it.
void Close(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Bills the lease for its use so far, as its worker reports it, and charges the
// added device time to its tenant in the wait queue. Does nothing when the
// lease has no account.
void Bill(ClusterState& state, const std::string& lease_id, const Use& used)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the device time that was billed to the lease; 0 when it has no
// account.
absl::Duration DeviceTimeOf(const ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns how fast the tenant's quotas let its leases use device time and
// bytes. A rate without a quota is unset.
CreditLedger::Rates RatesOf(ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the rates of the tenant that pays for the lease; unset rates when the
// lease has no account.
CreditLedger::Rates RatesOfLease(ClusterState& state,
                                 const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes the accounts of a worker that has restarted, because no more will be
// reported of its leases.
void SettleWorker(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Retires the accounts of a worker that is forgotten. They keep what was
// billed, in case the worker comes back.
void RetireWorker(ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Grants the lease another slice of device time and bytes if it has used most
// of its last one, as far as its tenant's credit and rates allow. Returns
// whether it granted more; the caller has the lease signed again then.
bool TopUp(ClusterState& state, const std::string& lease_id,
           const Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Grants more to leases that have used up their credit and whose tenants have
// rates, by the time that passed, and has those leases signed again.
void AdvanceRates(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::credits

#endif  // COORDINATOR_CLUSTER_LEASES_CREDITS_H_
