// Describes the analysis of a graph, as the Admin service shows it.
#ifndef COORDINATOR_GRAPHS_GRAPH_MEANING_H_
#define COORDINATOR_GRAPHS_GRAPH_MEANING_H_

#include "djinn/v1/notes.pb.h"
#include "djinn/v1/semantics.pb.h"
#include "djinn/v1/srg.pb.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator {

v1::GraphMeaning ToProto(const semantics::Meaning& meaning);

// Only the fields that concern the whole graph.
v1::GraphMeaning Summary(const v1::GraphMeaning& meaning);

// Lets what a program said of the graph's calls decide where the graph
// does not (scheduler/semantics/analysis/hints.h). `meaning` is what ToProto()
// made of the graph's; the notes fit it.
void ApplyHints(const v1::Graph& graph, const v1::GraphNotes& notes,
                v1::GraphMeaning* meaning);

// Returns whether each node's phase and modality are known.
bool IsComplete(const semantics::Meaning& meaning);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_MEANING_H_
