// A worker of the simulation: its queue, its memory and what it did.
#ifndef SCHEDULER_SIMULATOR_SIMULATED_WORKER_H_
#define SCHEDULER_SIMULATOR_SIMULATED_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/fairness/fair_queue.h"
#include "scheduler/fairness/run_times.h"
#include "scheduler/placement/fleet.h"

namespace djinn::scheduler {

// Pieces of state in a worker's memory. Not thread-safe.
class SimulatedMemory {
 public:
  explicit SimulatedMemory(uint64_t bytes) : bytes_(bytes) {}

  uint64_t pinned_bytes() const { return pinned_; }
  // Free, or taken by what no job uses.
  uint64_t available_bytes() const { return bytes_ - pinned_; }
  // One more job uses it. Room is made by dropping what none uses: those keys
  // are added to `dropped`. It fits into what is available, or is there.
  void Pin(StateKey key, uint64_t size, std::vector<StateKey>* dropped);
  void Unpin(StateKey key);

 private:
  struct Piece {
    uint64_t bytes = 0;
    size_t users = 0;
    // In `idle_`, while there are none.
    std::list<StateKey>::iterator place;
  };

  const uint64_t bytes_;
  uint64_t pinned_ = 0;
  uint64_t used_ = 0;
  absl::flat_hash_map<StateKey, Piece> pieces_;
  // Used least recently first.
  std::list<StateKey> idle_;
};

struct SimulatedWorker {
  SimulatedMemory memory;
  FairQueue queue;
  // Jobs whose turns have begun: the last one runs, each of the others yielded
  // to the next.
  std::vector<size_t> turns;
  // As a worker's: whose turn was taken last, while it lasts, and those that
  // began to wait with a deadline that they would miss.
  std::optional<InService> in_service;
  std::deque<size_t> refusals;
  // By programs instead of graphs.
  RunTimes run_times;
  // Of the states of jobs that wait or run, each for itself.
  uint64_t asked_bytes = 0;
  // Predicted, of jobs that wait or run.
  double queued_seconds = 0;
  double busy_seconds = 0;
  // The share of the last minute, as of `busy_time`.
  double busy_share = 0;
  double busy_time = 0;

  explicit SimulatedWorker(uint64_t memory_bytes) : memory(memory_bytes) {}

  // What jobs count more of states than is there.
  uint64_t shared_bytes() const { return asked_bytes - memory.pinned_bytes(); }
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATED_WORKER_H_
