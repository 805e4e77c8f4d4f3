// Builds and checks the messages with which a client and a worker greet each
// other on a new stream, and words the errors of a worker that is lost or
// breaks the protocol.
#ifndef CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_
#define CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/session.pb.h"

namespace djinn::v1 {
class ClientHello;
class WorkerHello;
}  // namespace djinn::v1

namespace djinn {

// The number of bytes that every worker must accept inside a message. The
// client refuses a worker with a lower limit.
inline constexpr uint64_t kLeastInlineBytes = 8192;

v1::ClientHello HelloFor(const std::string& session_id, const v1::Lease& lease);
// Checks the description that the lease's worker gives of itself.
absl::Status CheckHello(const v1::WorkerHello& hello, const v1::Lease& lease);

inline constexpr char kProtocolViolation[] = "PROTOCOL_VIOLATION";

// Returns the error of a worker that breaks the protocol.
absl::Status Violation(absl::string_view what);

// Returns whether the worker ended the session by order of the coordinator. The
// worker then does not know the reason.
bool IsDropped(const absl::Status& status);

// Returns the error of a device that loses its worker. If the worker had not
// yet `welcomed` the device, the error has the worker's own reason, which the
// program can act upon.
absl::Status LossOf(const v1::Lease& lease, bool welcomed,
                    const absl::Status& cause);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_WORKER_GREETING_H_
