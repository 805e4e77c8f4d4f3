// Tracks a program's position in a graph that was cut into stages, judging by
// its uses of the storages that the plan assigns to stages. The position tells
// how long a run still takes.
//
// A run uses a slot's storage as often as the graph's nodes do, and a further
// use begins another run. If the program deviates, or several threads run the
// graph, the answer is about an arbitrary run. The answer only decides what
// moves first.
//
// Not thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "djinn/v1/notes.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn {

class StageOrder {
 public:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  // Creates an order in which every time is unknown.
  StageOrder() = default;
  // Creates the order in which the plan's stages execute the graph. Times that
  // the plan omits are unknown.
  StageOrder(const v1::Graph& graph, const v1::StagePlan& plan);

  struct Use {
    bool begins_run = false;
    double remaining_seconds = kUnknown;
  };
  // Notes that the next call uses the slot's storage.
  Use Next(uint32_t slot);

 private:
  struct Slot {
    // The time at each node that uses the slot, in the order of nodes.
    std::vector<double> remaining_seconds;
    size_t used = 0;
  };
  // Filled for slots that a stage keeps; empty for others.
  std::vector<Slot> slots_;
  bool begun_ = false;
};

// Describes a graph of a virtual device that was cut into stages for its
// replicas. It lives as long as it assigns a storage to a replica.
struct CutGraph {
  // The whole graph, for the later question whether to cut it differently. It
  // has no nodes if it is too large to be kept.
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

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_
