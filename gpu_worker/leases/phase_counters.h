// Counts device time by phase, as the executor uses it. Thread-safe: atomics.
#ifndef GPU_WORKER_LEASES_PHASE_COUNTERS_H_
#define GPU_WORKER_LEASES_PHASE_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/lease/phase_times.h"

namespace djinn::worker {

class PhaseCounters {
 public:
  void Add(v1::Phase phase, uint64_t nanoseconds) {
    nanoseconds_[phase].fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  PhaseTimes Read() const {
    PhaseTimes times;
    for (int phase = 0; phase < PhaseTimes::kPhases; ++phase) {
      times.Add(static_cast<v1::Phase>(phase),
                absl::Nanoseconds(
                    nanoseconds_[phase].load(std::memory_order_relaxed)));
    }
    return times;
  }

 private:
  std::array<std::atomic<uint64_t>, PhaseTimes::kPhases> nanoseconds_ = {};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_PHASE_COUNTERS_H_
