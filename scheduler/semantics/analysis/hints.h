// What a program says of its calls, where its graphs leave something open.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_

#include <string>

#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// Of one node; each may be missing.
struct Hint {
  Phase phase = Phase::kUnspecified;
  std::string module_path;
};

// Lets hints decide the phase of each node of which the graph shows none by
// itself: of which nothing is known, or only what neighbours and other
// graphs suggest. Such a node takes the phase that it was given, unless its
// modality rules that out. Without one, a node of unknown phase takes that
// which all others of its module show. What the graph shows stays, whatever
// the hints are; nothing but phases, stages and the task changes.
//
// `hints` has one for each node. `meaning` is what Analyze() found of the
// graph; of its fields only nodes and slots are read.
void ApplyHints(const srg::Graph& graph, absl::Span<const Hint> hints,
                Meaning* meaning);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_HINTS_H_
