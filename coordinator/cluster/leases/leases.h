// Makes, signs, grants and ends leases. placement.h decides which lease a
// request gets.
//
// While a virtual device migrates it has two leases: the one in use, and the
// one that it migrates to, whose migrates_from names the one in use. The client
// may already use the lease that the device migrates to. Ending the lease in
// use therefore keeps that other lease, which takes over the quota. A caller
// that wants both to end calls DropMigration() first.
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

// Returns a new lease at the worker for the session's virtual device, without
// adding it to the tables. Increments the session's epoch unless this is the
// first lease of the virtual device. `tenant` may be null; the lease has no
// limits then.
Lease Make(ClusterState& state, const Worker& worker, MemberId device,
           const Tenant* tenant, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Adds the lease to the tables and takes its quota from its tenant's. A lease
// that a virtual device migrates to takes none, because the lease in use
// counts. Returns the lease, which the tables own.
Lease* Add(ClusterState& state, Lease lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Adds the lease, opens its account, and has the worker's next message list it.
// The messages to this worker and to the session's other workers list them to
// each other as peers. The client learns of the lease by Grant(). Returns the
// lease, which the tables own.
const Lease* Offer(ClusterState& state, Lease lease, Worker* worker,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Signs the next revision of the lease, with its present limits, credits and
// priority, and sets when the revision after that is due. Requires that the
// lease's session is in the tables.
void SignRevision(ClusterState& state, Lease* lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Checks the signature of a lease that a worker reports, and returns the
// lease's claims. Returns Unauthenticated (LEASE_UNKNOWN) for a wrong signature
// or an unknown key. If no state of an earlier process was restored, the keys
// of that process are lost; a lease whose key is unknown is then not checked.
absl::StatusOr<v1::LeaseClaims> ReportedClaims(const ClusterState& state,
                                               const v1::SignedLease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Marks the lease as granted, removes the session's pending request for it, and
// sends it to the client. Called when the worker has acknowledged the offered
// lease (see workers.cc), or when the lease that the client requested was
// adopted (see adoption.cc).
void Grant(ClusterState& state, Lease* lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the message that grants the lease to its client.
v1::LeaseGranted GrantOf(const Worker& worker, const Lease& lease);

// Removes the lease from the tables, closes its account and returns its quota;
// the lease that its virtual device migrates to takes the quota over, if there
// is one. Sends nothing to the client, and does not wake the worker's stream.
// Does nothing when there is no such lease.
void Remove(ClusterState& state, const std::string& lease_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Removes the lease as Remove() does, and wakes the worker's stream to send the
// end. The worker forgets the whole session if it has no other lease there.
void Withdraw(ClusterState& state, const Lease& lease, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends the lease for `reason` and removes it. Sends LeaseEnded to the client if
// the lease was granted. The client never saw an offered lease, so its request
// returns to the wait queue. A lease that a virtual device migrates to ends as
// DropMigration() describes. `for_tenant` is the tenant for which the quota was
// taken back, or empty. Does not wake the worker's stream, except for a lease
// that a virtual device migrates to: callers wake it by
// notifications::LeaveWorker() or Drop(), unless the worker itself is lost or
// has ended the lease.
void End(ClusterState& state, Lease* lease, absl::string_view reason,
         Wakes* wakes, absl::string_view for_tenant = "")
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends every lease at the worker, which is lost or has restarted, as End()
// does.
void EndAt(ClusterState& state, Worker* worker, absl::string_view reason,
           Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Ends the lease `to`, which a virtual device was to migrate to, and records
// the failure `why`. The virtual device keeps the lease in use. Sends
// LeaseEnded to the client if it was asked to migrate, because it may use `to`
// already. Also withdraws `to` from its worker.
void DropMigration(ClusterState& state, Lease* to, const absl::Status& why,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Records how the migration to the lease ended, for operators, and counts it.
// If `failure` is OK, the virtual device uses the lease, and `outcome` says how
// long it paused. Does nothing when the session has no record of the migration.
void EndMigrationRecord(const std::string& lease_id,
                        v1::MigrationOutcome outcome, absl::Status failure,
                        Session* session, ClusterMetrics* metrics);

}  // namespace djinn::coordinator::leases

#endif  // COORDINATOR_CLUSTER_LEASES_LEASES_H_
