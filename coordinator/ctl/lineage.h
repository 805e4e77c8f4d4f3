// Shows what clients keep against the loss of their workers, and how they went
// on after one.
#ifndef COORDINATOR_CTL_LINEAGE_H_
#define COORDINATOR_CTL_LINEAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Parses the name of a lineage: SESSION for the kind "session", and
// SESSION/STORAGE for "storage". InvalidArgument for anything else.
absl::StatusOr<v1::GetLineageRequest> ParseLineage(absl::string_view kind,
                                                   absl::string_view name);

// Returns, for each virtual device, what is kept, and a table of its live
// values with what would happen to each.
std::string ShowLineage(const v1::SessionLineage& lineage);

// Returns the kept messages in the language of Graphviz: an edge leads from a
// message to each that reads from it, and from the last one to the value.
std::string LineageToDot(const v1::SessionLineage& lineage);

// Describes a recovery in one line, with the terms of its time.
std::string DescribeRecovery(const v1::RecoveryInfo& recovery);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_LINEAGE_H_
