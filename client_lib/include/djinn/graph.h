// The graphs that a program's calls make, for people and for other programs.
#ifndef CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_
#define CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "djinn/api.h"

namespace djinn {

enum class GraphFormat {
  // A djinn.v1.GraphExport (proto/djinn/v1/graph_export.proto), serialised,
  kBinary,
  // or in protobuf's JSON.
  kJson,
};

// Runs `program` and returns the graphs of all calls that were made for the
// virtual device meanwhile, other threads' too. A graph is what was sent at a
// time; `djinnctl get graph FINGERPRINT` shows what the coordinator found out
// about it. Waits for the device before and after. With call sites on
// (SetCallSites) the nodes say where in the program they were called.
//
// The device's failures are returned. FailedPrecondition (EXPORT_RUNNING) while
// another export runs; ResourceExhausted (EXPORT_TOO_LARGE) above 256 MiB. What
// `program` throws passes through.
DJINN_API absl::StatusOr<std::string> ExportGraph(
    const std::function<void()>& program,
    GraphFormat format = GraphFormat::kBinary, int index = 0);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_
