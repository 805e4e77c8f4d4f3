// Predicts how long runs take, by graph. A worker keeps one per session;
// the simulator keeps one per worker, by program.
//
// The prediction is the shortest of the last kLast times: a run that is refused
// because of its prediction is never measured, so the prediction must not be
// too long. For the same reason a prediction expires after kTrusted, and the
// next run is measured again. The first run of a graph does not count,
// because it includes making the plan.
//
// The table holds every graph that was noted and not forgotten; its owner
// bounds it. Not thread-safe.
#ifndef SCHEDULER_FAIRNESS_RUN_TIMES_H_
#define SCHEDULER_FAIRNESS_RUN_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace djinn::scheduler {

class RunTimes {
 public:
  static constexpr size_t kLast = 4;
  static constexpr absl::Duration kTrusted = absl::Seconds(10);

  // Notes that a run of the graph took `took` and ended at `now`.
  void Note(uint64_t graph, absl::Duration took, absl::Duration now);
  void Forget(uint64_t graph) { entries_.erase(graph); }
  void Clear() { entries_.clear(); }

  // Returns the predicted time of a run; 0 when it is unknown.
  absl::Duration Expected(uint64_t graph, absl::Duration now) const;

 private:
  struct Entry {
    // Number of times noted, without the first run.
    uint64_t count = 0;
    bool has_first = false;
    std::array<absl::Duration, kLast> last;
    absl::Duration noted;
  };

  absl::flat_hash_map<uint64_t, Entry> entries_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_RUN_TIMES_H_
