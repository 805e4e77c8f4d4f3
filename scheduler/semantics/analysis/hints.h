// Applies what a program says about its calls where its graphs leave something
// open.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_

#include <string>

#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// The hint for one node; each field may be missing.
struct Hint {
  Phase phase = Phase::kUnspecified;
  std::string module_path;
};

// Lets hints decide the phase of each node whose phase the graph does not show
// by itself: nodes whose phase is unknown, or only suggested by neighbours and
// other graphs. Such a node takes the hinted phase, unless its modality rules
// that out. Without a hint, a node of unknown phase takes the phase that all
// others of its module show. A phase that the graph shows stays, whatever the
// hints are. Only phases, stages and the task change.
//
// `hints` has one entry for each node. `meaning` is the result of Analyze() for
// the graph; only its nodes and slots are read.
void ApplyHints(const srg::Graph& graph, absl::Span<const Hint> hints,
                Meaning* meaning);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_
