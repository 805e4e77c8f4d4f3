// Finds out which run ends the workers that execute it.
//
// Every run that was on its way to a lost worker is a suspect until a worker
// has executed it. The next worker gets each suspect by itself
// (RecoveryState::suspects), so that a second loss has one suspect.
//
// A worker that has a process for each tenant outlives a run that ends such a
// process, and says of each lease whether its messages were being executed
// then: EXECUTOR_LOST_IN_TURN if they were, EXECUTOR_LOST if not. The latter
// makes nobody a suspect. A run is not the likely cause of the end of such a
// worker as a whole, so that it takes four of those losses to give a run up.
// They count because a run may take the memory of the whole machine.
//
// Nothing tells what a worker of one process was executing when it ended. Two
// losses during the same run give that run up, whatever caused them.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_SUSPECTS_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_SUSPECTS_H_

#include "absl/status/status.h"
#include "client_lib/session/device/replica/replica_state.h"

namespace djinn::replica {

// Notes that the worker was lost by `cause` with runs on their way. Clears
// those that it had executed. If the cause means a death (MeansDeath()), gives
// up a run that reaches RecoveryState::kGivenUp: the last worker executed
// nothing else of this device. Another device's run may have killed a worker of
// one process.
void NoteLoss(State& r, const absl::Status& cause)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_SUSPECTS_H_
