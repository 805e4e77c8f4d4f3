// The life of a lease after it was asked for: made, signed, granted, ended.
//
// A lease that a virtual device migrates to ends with the lease in use; the
// lease in use goes on when the other ends.
#ifndef COORDINATOR_CLUSTER_LEASES_LEASES_H_
#define COORDINATOR_CLUSTER_LEASES_LEASES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_metrics.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::leases {

// A lease there for the session's virtual device, not added yet.
Lease Make(ClusterState& state, const Worker& worker, MemberId device,
           const Tenant* tenant, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The lease counts against its tenant's quota.
Lease* Add(ClusterState& state, Lease lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// A new lease at the worker, which is to hear of it, as are the session's other
// workers.
const Lease* Offer(ClusterState& state, Lease lease, Worker* worker,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Issues the lease again, as it is now.
void Issue(ClusterState& state, Lease* lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the claims of a lease that a worker reports. Unauthenticated
// (LEASE_UNKNOWN) when one of our keys should have signed it and did not.
absl::StatusOr<v1::LeaseClaims> ReportedClaims(const ClusterState& state,
                                               const v1::SignedLease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker knows the lease, which is offered, or was adopted: the client
// hears of it.
void Grant(ClusterState& state, Lease* lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the message that grants the lease to its client.
v1::LeaseGranted GrantOf(const Worker& worker, const Lease& lease);

// Removes the lease and closes its account; no peer is told.
void Remove(ClusterState& state, const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes it, and has its worker hear of that.
void Withdraw(ClusterState& state, const Lease& lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Tells the session, and removes it. `for_tenant` took back its own.
void End(ClusterState& state, Lease* lease, absl::string_view reason,
         Wakes* wakes, absl::string_view for_tenant = "")
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends what is left of leases at a worker that is lost or restarted.
void EndAt(ClusterState& state, Worker* worker, absl::string_view reason,
           Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The virtual device stays where it is: the lease that it was to go over to
// ends.
void DropMigration(ClusterState& state, Lease* to, const absl::Status& why,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Records for operators how the migration to the lease ended, and counts it.
// OK: the virtual device uses the lease.
void EndMigrationRecord(const std::string& lease_id,
                        v1::MigrationOutcome outcome, absl::Status failure,
                        Session* session, ClusterMetrics* metrics);

}  // namespace djinn::coordinator::leases

#endif  // COORDINATOR_CLUSTER_LEASES_LEASES_H_
