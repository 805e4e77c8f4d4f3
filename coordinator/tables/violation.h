// Errors for what a correct peer never sends.
#ifndef COORDINATOR_TABLES_VIOLATION_H_
#define COORDINATOR_TABLES_VIOLATION_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"

namespace djinn::coordinator {

// Returns InvalidArgument (PROTOCOL_VIOLATION).
inline absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   what);
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_VIOLATION_H_
