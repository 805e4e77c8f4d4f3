// Virtual devices that go on at other workers.
//
// The lease there is offered beside the one in use, and names it: both are in
// force until the client has said which of them it uses. Only the client knows,
// so that neither a restart nor a lost message here can take away what it has.
//
// Who goes, and when, is cluster_moves.h's business. How a way ends without the
// client's word is cluster_leases.h's.
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

// Before a lease that could not go is asked again.
inline constexpr absl::Duration kRetryTime = absl::Seconds(2);

// Offers a lease at another worker, or at this very one if it is named, to
// the virtual device that uses `from`. `reason` lives for ever. Errors as
// Admin.MigrateSession's.
absl::StatusOr<Migration*> Start(ClusterState& state, Lease* from,
                                 const std::string& to_worker,
                                 const char* reason, Wakes* wakes,
                                 bool if_it_pays = false)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// The worker knows the lease: asks the client.
void AskClient(ClusterState& state, Lease* to, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// InvalidArgument (PROTOCOL_VIOLATION) for ids that cannot be leases'.
absl::Status CheckOutcome(const v1::MigrationOutcome& outcome);

// Notes how the session executed a MigrationRequest. Leases that are not its
// own, and outcomes that are known, change nothing. InvalidArgument
// (PROTOCOL_VIOLATION) for ids that cannot be leases'.
absl::Status NoteOutcome(ClusterState& state, const StreamId& session,
                         const v1::MigrationOutcome& outcome)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Ends those that took too long.
void Expire(ClusterState& state, absl::Duration now, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::migration

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_H_
