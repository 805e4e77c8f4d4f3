// What runs may be expected to take, by structure: a session's at a worker, or
// in the simulator all of a worker's, by program.
//
// The shortest of the last few counts, since what is refused for it is never
// measured. For the same reason it is trusted for a while only: then a run goes
// on and is measured anew. The first run of a structure, which has its plan
// made, says nothing.
//
// As large as what was noted and not forgotten: who notes sees to that.
//
// Not thread-safe.
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

  // A run of the structure took so long, and ended now.
  void Note(uint64_t structure, absl::Duration took, absl::Duration now);
  void Forget(uint64_t structure) { entries_.erase(structure); }
  void Clear() { entries_.clear(); }

  // 0 when it is not known.
  absl::Duration Expected(uint64_t structure, absl::Duration now) const;

 private:
  struct Entry {
    // All but the first.
    uint64_t count = 0;
    bool has_first = false;
    std::array<absl::Duration, kLast> last;
    absl::Duration noted;
  };

  absl::flat_hash_map<uint64_t, Entry> entries_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_RUN_TIMES_H_
