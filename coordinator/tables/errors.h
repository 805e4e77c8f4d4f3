// Errors for operators who name something that does not exist, for what a
// correct peer never sends, and for callers who need another coordinator.
#ifndef COORDINATOR_TABLES_ERRORS_H_
#define COORDINATOR_TABLES_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"

namespace djinn::coordinator {

// Returns NotFound with the reason "<what>_UNKNOWN".
absl::Status Unknown(absl::string_view what, absl::string_view name);

absl::Status SessionUnknown(const std::string& id);

// Returns Unavailable (NOT_LEADER). `leader` is the leader's address, in the
// error's metadata, too; empty when it is not known.
absl::Status NotLeader(const std::string& leader);

// Returns InvalidArgument (PROTOCOL_VIOLATION).
inline absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   what);
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_ERRORS_H_
