// A worker of the simulation: its queue, its memory and its use so far.
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

// The pieces of state in a worker's memory. Not thread-safe.
class SimulatedMemory {
 public:
  explicit SimulatedMemory(uint64_t bytes) : bytes_(bytes) {}

  uint64_t pinned_bytes() const { return pinned_; }
  // Returns the bytes that are free, or held by pieces that no job uses.
  uint64_t available_bytes() const { return bytes_ - pinned_; }
  // Adds a user of the piece and adds the piece if it is absent. Drops unused
  // pieces to make room, and appends their keys to `dropped`. The piece must be
  // present already, or fit into available_bytes().
  void Pin(StateKey key, uint64_t size, std::vector<StateKey>* dropped);
  void Unpin(StateKey key);

 private:
  struct Piece {
    uint64_t bytes = 0;
    size_t users = 0;
    // Position in `idle_`, while it has no users.
    std::list<StateKey>::iterator place;
  };

  const uint64_t bytes_;
  uint64_t pinned_ = 0;
  uint64_t used_ = 0;
  absl::flat_hash_map<StateKey, Piece> pieces_;
  // Least recently used first.
  std::list<StateKey> idle_;
};

struct SimulatedWorker {
  SimulatedMemory memory;
  FairQueue queue;
  // Jobs whose turns have begun: the last one runs, and each of the others
  // yielded to the one after it.
  std::vector<size_t> turns;
  // As in a worker: the session whose turn was taken last, while the turn
  // lasts, and the jobs that began to wait with a deadline that they would
  // miss.
  std::optional<InService> in_service;
  std::deque<size_t> refusals;
  // Keyed by program instead of graph.
  RunTimes run_times;
  // Bytes of the states of jobs that wait or run, counted once per job.
  uint64_t asked_bytes = 0;
  // Predicted time of the jobs that wait or run.
  double queued_seconds = 0;
  double busy_seconds = 0;
  // Busy fraction of the last minute, as of `busy_time`.
  double busy_share = 0;
  double busy_time = 0;

  explicit SimulatedWorker(uint64_t memory_bytes) : memory(memory_bytes) {}

  // Returns the bytes of states that several jobs count and memory holds once.
  uint64_t shared_bytes() const { return asked_bytes - memory.pinned_bytes(); }
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATED_WORKER_H_
