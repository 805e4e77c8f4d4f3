// Describes a graph's calls to operators.
#ifndef COORDINATOR_GRAPHS_GRAPH_NODES_H_
#define COORDINATOR_GRAPHS_GRAPH_NODES_H_

#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::coordinator {

// Appends a node for each call of the graph, with the notes about it. Requires
// that graph and notes were checked.
void DescribeNodes(const v1::Graph& graph, const v1::GraphNotes& notes,
                   google::protobuf::RepeatedPtrField<v1::GraphNode>* nodes);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_NODES_H_
