// What the analysis found of a structure, as the Admin service shows it.
#ifndef COORDINATOR_GRAPH_MEANING_H_
#define COORDINATOR_GRAPH_MEANING_H_

#include "djinn/v1/semantics.pb.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::coordinator {

v1::GraphMeaning ToProto(const semantics::Meaning& meaning);

// Only the fields that concern the whole graph.
v1::GraphMeaning Summary(const v1::GraphMeaning& meaning);

// Whether each node's phase and modality are known.
bool IsComplete(const semantics::Meaning& meaning);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPH_MEANING_H_
