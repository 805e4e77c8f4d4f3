// Migrates virtual devices to other workers.
//
// The lease at the new worker is offered beside the one in use, and names it.
// Both are in force until the client has said which of them it uses. Only the
// client knows, so neither a restart nor a lost message here can take away what
// the client has.
//
// moves.h decides which virtual devices migrate, and when. leases.h ends a
// migration without the client's answer.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_H_
#define COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::migration {

// How long a lease that could not migrate is not tried again.
inline constexpr absl::Duration kRetryTime = absl::Seconds(2);

// Offers the virtual device that uses `from` a lease at another worker: at
// `to_worker` if that is not empty, otherwise at the best one. With
// `if_it_pays`, does so only if migrating would take less time than staying.
// Returns the record of the migration, which lives until the session drops it.
// `reason` must live for ever. Returns the errors of Admin.MigrateSession, and
// FailedPrecondition (DOES_NOT_PAY).
absl::StatusOr<Migration*> Start(ClusterState& state, Lease* from,
                                 const std::string& to_worker,
                                 const char* reason, Wakes* wakes,
                                 bool if_it_pays = false)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Asks the client to migrate to the lease `to`. Called when the lease's worker
// has acknowledged it. Ends the migration if the client is away.
void AskClient(ClusterState& state, Lease* to, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns InvalidArgument (PROTOCOL_VIOLATION) for ids that cannot be leases'.
absl::Status CheckOutcome(const v1::MigrationOutcome& outcome);

// Applies the client's answer to a MigrationRequest. After a success, the
// virtual device uses the new lease, and the one that it left is withdrawn;
// after a failure, the new lease ends. Changes nothing for leases of other
// sessions and for outcomes that are known.
//
// Returns InvalidArgument (PROTOCOL_VIOLATION) for ids that cannot be leases',
// or the errors of ClusterState::FindOpenSession().
absl::Status NoteOutcome(ClusterState& state, const StreamId& session,
                         const v1::MigrationOutcome& outcome)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends migrations that took too long: those whose worker did not acknowledge
// the lease, and those whose outcome the client has not reported. Asks clients
// again about migrations that an earlier process decided.
void Expire(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::migration

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_H_
