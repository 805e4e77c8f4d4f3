// Counts sizes that are whole numbers, such as rows. An observation costs a few
// atomic additions, no lock and no allocation.
//
// Thread-safe. A concurrent reader may see an observation in the sum and not
// yet in its bucket.
#ifndef COMMON_METRICS_COUNT_HISTOGRAM_H_
#define COMMON_METRICS_COUNT_HISTOGRAM_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace djinn {

class CountHistogram {
 public:
  // Nine bounds, each twice the one before: 1 to 256.
  static constexpr size_t kBounds = 9;
  static constexpr uint64_t Bound(size_t bucket) {
    return uint64_t{1} << bucket;
  }

  void Observe(uint64_t value) {
    size_t bucket = 0;
    while (bucket < kBounds && value > Bound(bucket)) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  // Returns the observations in this bucket alone. The last bucket, kBounds,
  // has no upper bound.
  uint64_t count(size_t bucket) const {
    return counts_[bucket].load(std::memory_order_relaxed);
  }
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kBounds + 1> counts_{};
  std::atomic<uint64_t> sum_{0};
};

}  // namespace djinn

#endif  // COMMON_METRICS_COUNT_HISTOGRAM_H_
