// Errors for operators who name something that does not exist.
#ifndef COORDINATOR_TABLES_UNKNOWN_H_
#define COORDINATOR_TABLES_UNKNOWN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn::coordinator {

// Returns NotFound with the reason "<what>_UNKNOWN".
absl::Status Unknown(absl::string_view what, absl::string_view name);

absl::Status SessionUnknown(const std::string& id);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_UNKNOWN_H_
