// What a graph means: patterns, phases, residency, cost, edges, stages.
//
// A pure function of the graph and of what its session's earlier graphs
// showed; docs/design/semantics.md has the rules.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_

#include "common/srg/graph.h"
#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// `graph` was accepted by srg::Validate(), and must outlive the result.
// `context` is what is known of the program so far, and learns of it; it may be
// null. `known` is what an earlier analysis of it found, or null: it stays, and
// only what was unspecified is looked for again. Time grows with nodes times
// operands; patterns look at most 64 nodes far.
Meaning Analyze(const srg::Graph& graph, Context* context = nullptr,
                const Known* known = nullptr);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_
