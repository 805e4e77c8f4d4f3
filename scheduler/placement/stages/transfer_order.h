// Orders values that are to move between workers. A plan lists its transfers in
// this order. A worker that others fetch values from sends them in this order.
//
// This is list scheduling by the critical path: of the transfers that are
// possible now, the first is the one that the rest of the run waits longest
// for.
#ifndef SCHEDULER_PLACEMENT_STAGES_TRANSFER_ORDER_H_
#define SCHEDULER_PLACEMENT_STAGES_TRANSFER_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>

namespace djinn::scheduler {

// Number of values of one session that a worker sends at the same time. Values
// behind these in the order hardly move.
inline constexpr size_t kTransfersAtOnce = 4;

struct TransferRank {
  // Number of the run in a sequence of repetitions. An earlier run's transfers
  // are first, however critical a later one is; otherwise a frequent transfer
  // would delay those before it.
  uint64_t round = 0;
  // Least time that the round still takes once the value has arrived. Infinite
  // when unknown, so that such a value does not wait.
  double remaining_seconds = std::numeric_limits<double>::infinity();
  // The order in which transfers were announced.
  uint64_t number = 0;
};

// Orders ranks strictly. Their numbers must differ, and no figure may be NaN.
inline bool MovesBefore(const TransferRank& a, const TransferRank& b) {
  if (a.round != b.round) return a.round < b.round;
  if (a.remaining_seconds != b.remaining_seconds) {
    return a.remaining_seconds > b.remaining_seconds;
  }
  return a.number < b.number;
}

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_STAGES_TRANSFER_ORDER_H_
