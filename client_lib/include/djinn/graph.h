// Exports the graphs of a program's calls, for tools and for reading:
//
//   absl::StatusOr<std::string> json = djinn::ExportGraph(
//       [&] { model->forward(x); }, djinn::GraphFormat::kJson);
#ifndef CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_
#define CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "djinn/api.h"

namespace djinn {

enum class GraphFormat {
  // A serialised djinn.v1.GraphExport (proto/djinn/v1/graph_export.proto).
  kBinary,
  // The same message in protobuf's JSON.
  kJson,
};

// Calls `program`, and returns the graphs of the calls on virtual device
// `index` that any thread made during that time. There is one graph for each
// segment that was sent; `djinnctl get graph FINGERPRINT` shows what the
// coordinator knows about a graph. ExportGraph() waits for the device before
// and after calling `program`. If call sites are on (SetCallSites()), the nodes
// name the sites of their calls.
//
// Returns the failure of the device; FailedPrecondition (EXPORT_RUNNING) if
// another export runs; ResourceExhausted (EXPORT_TOO_LARGE) above 256 MiB.
// Exceptions of `program` pass through.
DJINN_API absl::StatusOr<std::string> ExportGraph(
    const std::function<void()>& program,
    GraphFormat format = GraphFormat::kBinary, int index = 0);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_GRAPH_H_
