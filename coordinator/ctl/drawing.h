// Draws graphs: nodes in the colour of their phase, with their role and cost;
// weights and caches beside the nodes that read them; edges as wide as they are
// critical.
#ifndef COORDINATOR_CTL_DRAWING_H_
#define COORDINATOR_CTL_DRAWING_H_

#include <string>

#include "absl/status/statusor.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Greatest number of nodes that a drawing may have.
inline constexpr int kMaxDrawnNodes = 2000;

// Returns the graph in the language of Graphviz.
//
// `info` is an answer to GetGraph. Returns FailedPrecondition
// (DRAWING_TOO_LARGE), whose text says what to do instead, above
// kMaxDrawnNodes. Returns Internal (GRAPH_MALFORMED) for an inconsistent
// answer.
absl::StatusOr<std::string> ToDot(const v1::GraphInfo& info);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_DRAWING_H_
