// Parses and formats the names of runs that operators use: DEVICE:RUN;
// DEVICE.REPLICA:RUN for a further replica of a multi-worker device; or RUN
// alone if only one device has such a run. "2.1:5" is run 5 of replica 1 of
// virtual device 2.
#ifndef COORDINATOR_ADMIN_RUN_NAME_H_
#define COORDINATOR_ADMIN_RUN_NAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/tables/lease_table.h"

namespace djinn::coordinator {

struct RunName {
  // Unset if the name fits any device.
  std::optional<MemberId> device;
  // Like RunRecord.number; never 0.
  uint64_t number = 0;
};

// Returns the parsed name, or InvalidArgument (RUN_MALFORMED), whose message
// says how a name must look.
absl::StatusOr<RunName> ParseRunName(absl::string_view text);
std::string RunNameOf(MemberId device, uint64_t number);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_RUN_NAME_H_
