// Reads values back, so that less must be computed again after a loss.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_STEPS_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_STEPS_H_

#include "absl/status/status.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/wait.h"
#include "common/base/mutex.h"

namespace djinn::replica {

// Has the device leave its worker for another one as soon as it has read its
// values back, so that it need not compute them again. Returns false if the
// device cannot read them now.
bool LeaveWithCheckpoint(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns whether StepCheckpoint() has something to do.
bool CheckpointStepDue(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);
// Returns whether further work must wait, because values of this point of the
// order are still to be asked for.
bool CheckpointHoldsWorkBack(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Begins a checkpoint, or does its next step. Called by the device's own
// thread.
void StepCheckpoint(State& r);
// Returns when the sender must check again whether a checkpoint is due.
Deadline NextCheckpoint(const State& r);
// Makes a checkpoint of everything that was called before, and waits for it.
// Returns OK if the device has computed nothing; the failure of the device;
// ResourceExhausted (CHECKPOINT_MEMORY); DeadlineExceeded (CHECKPOINT_PENDING).
absl::Status Checkpoint(State& r, const Deadline& deadline);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_STEPS_H_
