// Names of runs, for operators: "0:17" is run 17 of virtual device 0, "2.1:5"
// run 5 of member 1 of virtual device 2, and "17" run 17 of the device that has
// one.
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
  // Unset: any.
  std::optional<MemberId> device;
  // As RunRecord.number; not 0.
  uint64_t number = 0;
};

// InvalidArgument (RUN_MALFORMED) says what a name looks like.
absl::StatusOr<RunName> ParseRunName(absl::string_view text);
std::string RunNameOf(MemberId device, uint64_t number);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_RUN_NAME_H_
