// Opens the session that the program holds: see recording/session.h.
#ifndef CLIENT_LIB_SESSION_REMOTE_SESSION_H_
#define CLIENT_LIB_SESSION_REMOTE_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/recording/session.h"

namespace djinn {

// Opens a session through `link`. Returns the link's errors, and
// FailedPrecondition (AFTER_FORK) in a process forked from one that had opened
// a session. The caller keeps at most one session open per process.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(
    SessionOptions options, std::unique_ptr<CoordinatorLink> link,
    std::unique_ptr<WorkerConnector> connector);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_REMOTE_SESSION_H_
