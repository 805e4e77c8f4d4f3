// Finds a worker that has memory for what the session holds.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_ROOM_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_ROOM_H_

#include <cstdint>

#include "client_lib/session/device/replica/replica_state.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::replica {

// Limit on the uploads that a lease request names.
inline constexpr int kMaxContentHints = 64;
// Returns the bytes that the next worker must have room for. Uploads that the
// sender has not taken yet do not count, because they may fail.
uint64_t HeldBytes(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Completes the lease request of a recovery that needs `held` bytes: names
// uploads that are sent again, the largest first, and asks for memory for the
// rest.
void AskForHeld(const State& r, uint64_t held, v1::LeaseRequest* request)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Takes the worker's report that it lacks memory for a message. Leaves the
// worker and returns true if the message is part of a replay, unless the
// message lacked memory before, or connect_timeout has passed since the first
// worker was left for that. Then the message fails like any other, and a large
// upload that the program believes to be there, whose bytes the worker did not
// even ask for, fails the device.
bool LeaveForRoom(State& r, const v1::ControlResponse& response);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_ROOM_H_
