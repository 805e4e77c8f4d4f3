// Gives the sessions of a queue their turns, for tests.
#ifndef SCHEDULER_FAIRNESS_FAIR_QUEUE_TESTING_H_
#define SCHEDULER_FAIRNESS_FAIR_QUEUE_TESTING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::scheduler {

inline constexpr int kUsual = 2;
inline constexpr FairQueue::Work kWork;

// Takes `count` turns of equal length; each session that ran has more work.
// Returns the number of turns of each session.
inline std::map<uint64_t, int> Serve(
    FairQueue* queue, int count,
    absl::Duration length = absl::Milliseconds(1)) {
  std::map<uint64_t, int> turns;
  for (int i = 0; i < count; ++i) {
    const uint64_t key = queue->Take();
    ++turns[key];
    queue->Done(key, length, kWork);
  }
  return turns;
}

// Gives every waiting session its turn. None has more work after it. Returns
// the sessions in the order of their turns.
inline std::vector<uint64_t> Drain(FairQueue* queue) {
  std::vector<uint64_t> order;
  while (!queue->empty()) {
    order.push_back(queue->Take());
    queue->Done(order.back(), absl::Milliseconds(1), std::nullopt);
  }
  return order;
}

inline void JoinAndWait(uint64_t key, const std::string& tenant, double weight,
                        FairQueue* queue) {
  queue->Join(key, tenant, weight, kUsual);
  queue->MakeRunnable(key, kWork);
}

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_FAIR_QUEUE_TESTING_H_
