// Derives the meaning of a graph: patterns, phases, residency, cost, edges,
// stages.
//
// The result depends only on the graph and on what earlier graphs of its
// session showed. docs/design/semantics.md describes the rules.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_

#include "common/srg/graph.h"
#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// Analyzes a graph that srg::Validate() accepted. The graph must outlive the
// result.
//
// `context` holds what is known of the program so far, and is updated; it may
// be null. `known` is the finding of an earlier analysis of the same graph, or
// null: it stays, and the analysis only looks for what was unspecified.
//
// Time grows with nodes times operands; patterns look at most 64 nodes far.
Meaning Analyze(const srg::Graph& graph, Context* context = nullptr,
                const Known* known = nullptr);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_ANALYSIS_H_
