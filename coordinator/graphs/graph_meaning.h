// Converts the analysis of a graph to what the Admin service shows.
#ifndef COORDINATOR_GRAPHS_GRAPH_MEANING_H_
#define COORDINATOR_GRAPHS_GRAPH_MEANING_H_

#include "djinn/v1/notes.pb.h"
#include "djinn/v1/semantics.pb.h"
#include "djinn/v1/srg.pb.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator {

v1::GraphMeaning ToProto(const semantics::Meaning& meaning);

// Returns only the fields that concern the whole graph.
v1::GraphMeaning Summary(const v1::GraphMeaning& meaning);

// Applies the notes in which a program described the graph's calls, wherever
// the graph itself leaves the meaning open
// (scheduler/semantics/analysis/hints.h). `meaning` is what ToProto() returned
// for the graph; the notes fit the graph.
void ApplyHints(const v1::Graph& graph, const v1::GraphNotes& notes,
                v1::GraphMeaning* meaning);

// Returns whether the phase and modality of every node are known.
bool IsComplete(const semantics::Meaning& meaning);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_MEANING_H_
