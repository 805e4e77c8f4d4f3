// Tracks a program's position in a graph that was cut into stages, by its uses
// of the storages that the stages keep. The position tells how long a run still
// takes.
//
// A run uses a slot's storage as often as the graph's nodes do. A further use
// begins another run. If the program deviates, or several threads run the
// graph, the answer is about an arbitrary run. It only decides what moves
// first.
//
// Not thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "djinn/v1/placement.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn {

class StageOrder {
 public:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  // Makes an order in which every time is unknown.
  StageOrder() = default;
  // Makes the order of a plan of the graph. Times that the plan leaves out are
  // unknown.
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

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_
