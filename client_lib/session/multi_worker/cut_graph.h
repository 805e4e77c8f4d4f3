// Describes a graph of a virtual device that was cut into stages for its
// replicas.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/session/multi_worker/stage_order.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn {

// Lives as long as it places a storage.
struct CutGraph {
  // The whole graph, to ask later whether it should be cut differently. It has
  // no nodes if it is too large to be kept.
  v1::Graph graph;
  v1::GraphNotes notes;
  // The replica that should keep the storage of each slot; -1 for none.
  std::vector<int8_t> member_of_slot;
  // The program's position in the graph.
  StageOrder order;
  // Uses of one of its parts at which the coordinator is asked again.
  uint64_t next_uses = 0;
};

// The slot of a cut graph that a storage was bound to.
struct PlacedSlot {
  std::shared_ptr<CutGraph> cut;  // null: no plan names it
  uint32_t slot = 0;

  int8_t member() const {
    return cut == nullptr ? int8_t{-1} : cut->member_of_slot[slot];
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_
