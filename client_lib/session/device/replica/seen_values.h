// Compares what a replay computes with what the program has seen.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_SEEN_VALUES_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_SEEN_VALUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/lineage/lineage.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::replica {

// Gives the error to the node and to all that depends on it, and to the
// session's root errors. The node's error then has the id of a root error.
void TaintByRootError(State& r, Lineage::Node* node, const absl::Status& error)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Takes the answer to a read first. Returns true if no thread waits for it. May
// replace the value by an error.
bool TakeKept(State& r, v1::ReadReply* reply)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Notes a value that the program is about to see.
void NoteSeen(State& r, uint64_t sequence, absl::string_view value)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// May replace the metadata by an error.
void TakeKept(State& r, v1::RunMetadata* reply)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_SEEN_VALUES_H_
