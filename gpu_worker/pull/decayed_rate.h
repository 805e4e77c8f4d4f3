// Averages how fast bytes moved lately; the newest measurements count most.
//
// Not thread-safe.
#ifndef GPU_WORKER_PULL_DECAYED_RATE_H_
#define GPU_WORKER_PULL_DECAYED_RATE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/time/time.h"

namespace djinn::worker {

class DecayedRate {
 public:
  // How long a measurement is averaged with a newer one, and how long it is
  // reported.
  static constexpr absl::Duration kFresh = absl::Seconds(10);
  static constexpr absl::Duration kKept = absl::Minutes(5);

  // Adds a measurement: the bytes moved in that time. Both must be more than 0.
  void Add(uint64_t bytes, absl::Duration took, absl::Duration now) {
    const double measured =
        absl::ToDoubleSeconds(took) / static_cast<double>(bytes);
    const bool fresh = seconds_per_byte_ > 0 && now - measured_ <= kFresh;
    seconds_per_byte_ =
        fresh ? kWeight * measured + (1 - kWeight) * seconds_per_byte_
              : measured;
    measured_ = now;
  }

  // Returns the rate; 0 when nothing moved, or too long ago.
  uint64_t BytesPerSecond(absl::Duration now) const {
    if (seconds_per_byte_ == 0 || now - measured_ > kKept) return 0;
    // Clamps to the range that the report can express.
    return static_cast<uint64_t>(
        std::llround(std::clamp(1 / seconds_per_byte_, 1.0, 1e15)));
  }
  // Returns when the last measurement was added.
  absl::Duration measured() const { return measured_; }

 private:
  // The weight of a new measurement beside a fresh average.
  static constexpr double kWeight = 0.5;

  double seconds_per_byte_ = 0;
  absl::Duration measured_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_DECAYED_RATE_H_
