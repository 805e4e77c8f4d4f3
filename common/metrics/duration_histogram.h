// Counts durations by size. An observation costs a few atomic additions, no
// lock and no allocation, which is cheap enough for every message.
//
// Thread-safe. A concurrent reader may see an observation in the sum and not
// yet in its bucket.
#ifndef COMMON_METRICS_DURATION_HISTOGRAM_H_
#define COMMON_METRICS_DURATION_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace djinn {

class DurationHistogram {
 public:
  // Fifteen bounds, each twice the one before: 5 ms to 82 s by default.
  static constexpr size_t kBounds = 15;

  explicit DurationHistogram(absl::Duration first = absl::Milliseconds(5))
      : first_(absl::ToInt64Nanoseconds(first)) {}

  void Observe(absl::Duration duration) {
    const int64_t nanoseconds =
        std::max<int64_t>(0, absl::ToInt64Nanoseconds(duration));
    size_t bucket = 0;
    for (int64_t bound = first_; bucket < kBounds && nanoseconds > bound;
         bound *= 2) {
      ++bucket;
    }
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(static_cast<uint64_t>(nanoseconds),
                   std::memory_order_relaxed);
  }

  // Returns the upper bound of a bucket. The last bucket, kBounds, has none.
  absl::Duration bound(size_t bucket) const {
    return absl::Nanoseconds(first_) * static_cast<double>(1ull << bucket);
  }
  // Returns the observations in this bucket alone.
  uint64_t count(size_t bucket) const {
    return counts_[bucket].load(std::memory_order_relaxed);
  }
  absl::Duration sum() const {
    return absl::Nanoseconds(sum_.load(std::memory_order_relaxed));
  }

 private:
  const int64_t first_;
  std::array<std::atomic<uint64_t>, kBounds + 1> counts_{};
  std::atomic<uint64_t> sum_{0};
};

}  // namespace djinn

#endif  // COMMON_METRICS_DURATION_HISTOGRAM_H_
