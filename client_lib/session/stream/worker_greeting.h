// How a client and a worker greet each other on a new stream, and how the
// client words the loss of the worker.
#ifndef CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_
#define CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Bytes that every worker takes inside a message; one that takes less is
// refused.
inline constexpr uint64_t kLeastInlineBytes = 8192;

v1::ClientHello HelloFor(const std::string& session_id, const v1::Lease& lease);
// Checks what the lease's worker says of itself.
absl::Status CheckHello(const v1::WorkerHello& hello, const v1::Lease& lease);

// Whether another stream may do better than the one that ended so.
bool MayPass(const absl::Status& status);
// Whether the worker obeyed the coordinator, and knows no reason.
bool IsDropped(const absl::Status& status);

// The error of a device that loses its worker. Before the worker has `welcomed`
// it, a reason of the worker's own is what the program can act upon.
absl::Status LossOf(const v1::Lease& lease, bool welcomed,
                    const absl::Status& cause);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_
