// Finds djinn-coordinator and djinn-worker on this machine.
#ifndef CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_
#define CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"

namespace djinn {

struct ClusterPrograms {
  std::string coordinator;
  std::string worker;
};

// Searches $DJINN_BIN_DIR if it is set. Otherwise searches the folder of the
// library or program that contains this code, the folder of the running
// program, and the build tree that either lies in. NotFound (PROGRAM_MISSING)
// names the folders searched.
absl::StatusOr<ClusterPrograms> FindClusterPrograms();

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_
