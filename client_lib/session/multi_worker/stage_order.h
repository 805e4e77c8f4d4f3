// Where a program is in a graph that was cut into stages, by its use of
// what they keep: how long a run still takes from there on.
//
// A run uses what a slot is bound to as often as the graph's nodes do.
// Whoever uses it more often begins another run. Where the program does
// something else than that, or several threads do the same, what is said is
// about some run or other: it decides what moves first, and nothing else.
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

  // Knows nothing.
  StageOrder() = default;
  // The plan is of the graph. What it does not say is not known.
  StageOrder(const v1::Graph& graph, const v1::StagePlan& plan);

  struct Use {
    bool begins_run = false;
    double remaining_seconds = kUnknown;
  };
  // The next call uses what the slot is bound to.
  Use Next(uint32_t slot);

 private:
  struct Slot {
    // By node that uses it, in their order.
    std::vector<double> remaining_seconds;
    size_t used = 0;
  };
  // Of slots that a stage keeps; of others empty.
  std::vector<Slot> slots_;
  bool begun_ = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_ORDER_H_
