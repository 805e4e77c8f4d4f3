// Where djinn-coordinator and djinn-worker are on this machine.
#ifndef CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_
#define CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"

namespace djinn {

struct ClusterPrograms {
  std::string coordinator;
  std::string worker;
};

// Looks in $DJINN_BIN_DIR when it is set; otherwise beside the library or
// program that contains this code, beside the running program, and in the build
// tree that either lies in. NotFound (PROGRAM_MISSING) names what was tried.
absl::StatusOr<ClusterPrograms> FindClusterPrograms();

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_FIND_PROGRAMS_H_
