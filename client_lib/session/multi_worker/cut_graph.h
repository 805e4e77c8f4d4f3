// A graph of a virtual device that was cut into stages for its members.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/session/multi_worker/stage_order.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn {

// Lives as long as a storage is placed by it.
struct CutGraph {
  // Whole, for the question whether it should be cut otherwise by now; without
  // nodes: it is too large to be kept for that.
  v1::Graph graph;
  v1::GraphNotes notes;
  // The member that is to keep what the slot is bound to; -1: none.
  std::vector<int8_t> member_of_slot;
  // Where the program is in it.
  StageOrder order;
  // Asked about again when a part of it is used so often.
  uint64_t next_uses = 0;
};

// What a storage was bound to.
struct PlacedSlot {
  std::shared_ptr<CutGraph> cut;  // null: no plan names it
  uint32_t slot = 0;

  int8_t member() const {
    return cut == nullptr ? int8_t{-1} : cut->member_of_slot[slot];
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_CUT_GRAPH_H_
