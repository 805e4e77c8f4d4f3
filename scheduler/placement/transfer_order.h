// Which of several values that are to move between workers goes first: by this
// a plan lists what moves between its stages, and a worker sends what others
// fetch of it.
//
// List scheduling by the critical path: of what can be done now, that goes
// first which the rest of the run waits longest behind.
#ifndef SCHEDULER_PLACEMENT_TRANSFER_ORDER_H_
#define SCHEDULER_PLACEMENT_TRANSFER_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>

namespace djinn::scheduler {

// Values of one session that a worker sends at the same time; what is behind
// these in the order hardly moves.
inline constexpr size_t kTransfersAtOnce = 4;

struct TransferRank {
  // Of what is repeated the earlier goes first, however critical the later is:
  // otherwise what comes again and again would hold what came before.
  uint64_t round = 0;
  // How long the round still takes once the value has come, at least. Of what
  // nobody knows that it can wait, nobody lets it.
  double remaining_seconds = std::numeric_limits<double>::infinity();
  // In which they were made known.
  uint64_t number = 0;
};

// A strict order of ranks with unlike numbers; no figure may be NaN.
inline bool MovesBefore(const TransferRank& a, const TransferRank& b) {
  if (a.round != b.round) return a.round < b.round;
  if (a.remaining_seconds != b.remaining_seconds) {
    return a.remaining_seconds > b.remaining_seconds;
  }
  return a.number < b.number;
}

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_TRANSFER_ORDER_H_
