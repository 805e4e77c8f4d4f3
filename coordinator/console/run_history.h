// Remembers runs that workers reported, up to a number, for the time picture.
//
// A worker answers with durations on its own clock. The history places a run on
// the console's clock by the time at which the answer arrived, so a run's
// position is off by the way that the answer took; its lengths are exact.
#ifndef COORDINATOR_CONSOLE_RUN_HISTORY_H_
#define COORDINATOR_CONSOLE_RUN_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/runs.pb.h"

namespace djinn::console {

// One run, as it was last reported.
struct SeenRun {
  // Unique in the process.
  uint64_t id = 0;
  std::string worker, tenant, session, lease, preempted_by, reason;
  // Empty while the graph is not known.
  std::string fingerprint;
  uint32_t virtual_device = 0;
  uint32_t member = 0;
  uint64_t number = 0;
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  v1::RunRecord::State state = v1::RunRecord::STATE_UNSPECIFIED;
  v1::RunGate gate = v1::RUN_GATE_UNSPECIFIED;
  absl::Time received;
  absl::Duration waited;
  // Negative: the run has not begun.
  absl::Duration served;
  absl::Duration device_time;
  uint64_t yields = 0;
  absl::Duration yielded_for;
};

// Not thread-safe.
class RunHistory {
 public:
  // Keeps at most `capacity` runs; forgets those that changed least recently.
  explicit RunHistory(size_t capacity) : capacity_(capacity) {}

  // Adds a run, or updates it, as of an answer that arrived at `now`.
  void Add(const v1::RunInfo& run, absl::Time now);

  // Number of the last change. Every change has a larger number than the last.
  uint64_t last_change() const { return last_change_; }
  // Runs by the numbers of their last changes.
  const std::map<uint64_t, SeenRun>& by_change() const { return by_change_; }

  // Measured times of a graph's completed runs.
  struct Measured {
    uint64_t runs = 0;
    absl::Duration served;
    absl::Duration device_time;
  };
  Measured MeasuredOf(const std::string& fingerprint) const;

 private:
  // Identifies a run: its lease and its number.
  using Key = std::pair<std::string, uint64_t>;

  const size_t capacity_;
  uint64_t last_change_ = 0;
  uint64_t last_id_ = 0;
  std::map<uint64_t, SeenRun> by_change_;
  absl::flat_hash_map<Key, uint64_t> change_of_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_RUN_HISTORY_H_
