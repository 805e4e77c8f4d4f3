// Which of several ways to carry out a node is taken, where the client lets the
// worker choose. What is faster depends on operator, shape and machine, so it
// is measured: now and then each way is tried a few times, and the other runs
// take the one that took least. What it takes as a rule counts, the median:
// threads that happen to be awake make a way fast that mostly wakes them, and
// for some milliseconds others may have a processor, as a client has that
// captures beside. So the ways are tried in turns, some runs apart, and soon
// once more: the first runs of a program are like no others.
//
// Thread-safe: runs of the same plan in several threads count together, and may
// mix up their measurements, which costs time only.
#ifndef GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_
#define GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace djinn::worker {

struct MeasuredTurn {
  size_t way = 0;
  bool measured = false;
};

template <size_t kWays>
class MeasuredChoice {
 public:
  static constexpr uint32_t kTrials = 8;  // of each way
  // Runs of a way one after the other: the first one may have to wake threads.
  static constexpr uint32_t kAtATime = 2;
  // All ways once, and as many runs that are not measured.
  static constexpr uint32_t kRound = 2 * kAtATime * kWays;
  static constexpr uint32_t kAllTrials = kRound * (kTrials / kAtATime);
  // From the first trials to the next ones, and from these on.
  static constexpr uint32_t kFirstPeriod = 256;
  static constexpr uint32_t kPeriod = 2048;
  static_assert(kAllTrials < kFirstPeriod);

  // The way that was the fastest is known from before: it is taken, and
  // measured anew only when it would be again.
  void Start(size_t way) {
    if (way >= kWays) return;
    best_.store(way, std::memory_order_relaxed);
    runs_.store(kAllTrials, std::memory_order_relaxed);
  }
  // The fastest, once all were tried.
  std::optional<size_t> settled() const {
    for (const Times& times : times_) {
      if (times.count.load(std::memory_order_relaxed) < kTrials) {
        return std::nullopt;
      }
    }
    return best_.load(std::memory_order_relaxed);
  }

  // For a run that begins.
  MeasuredTurn Next() {
    uint32_t run = runs_.fetch_add(1, std::memory_order_relaxed);
    if (run >= kFirstPeriod) run = (run - kFirstPeriod) % kPeriod;
    const uint32_t turn = run % kRound / kAtATime;
    if (run >= kAllTrials || turn >= kWays) {
      return {best_.load(std::memory_order_relaxed), /*measured=*/false};
    }
    if (run == 0) Forget();
    return {turn, /*measured=*/true};
  }

  // What a measured turn took.
  void Took(size_t way, uint64_t nanoseconds) {
    Times& times = times_[way];
    const uint32_t number = times.count.fetch_add(1, std::memory_order_relaxed);
    if (number >= kTrials) return;
    times.nanoseconds[number].store(nanoseconds, std::memory_order_relaxed);
    best_.store(Best(), std::memory_order_relaxed);
  }

 private:
  struct Times {
    std::array<std::atomic<uint64_t>, kTrials> nanoseconds;
    std::atomic<uint32_t> count{0};

    // The largest number where there are none.
    uint64_t Median() const {
      const uint32_t number =
          std::min(count.load(std::memory_order_relaxed), kTrials);
      if (number == 0) return UINT64_MAX;
      std::array<uint64_t, kTrials> sorted;
      for (uint32_t i = 0; i < number; ++i) {
        sorted[i] = nanoseconds[i].load(std::memory_order_relaxed);
      }
      const auto middle = sorted.begin() + (number - 1) / 2;
      std::nth_element(sorted.begin(), middle, sorted.begin() + number);
      return *middle;
    }
  };

  void Forget() {
    for (Times& times : times_) times.count.store(0, std::memory_order_relaxed);
  }

  size_t Best() const {
    std::array<uint64_t, kWays> medians;
    for (size_t i = 0; i < kWays; ++i) medians[i] = times_[i].Median();
    return static_cast<size_t>(
        std::min_element(medians.begin(), medians.end()) - medians.begin());
  }

  std::atomic<uint32_t> runs_{0};
  std::atomic<size_t> best_{0};
  std::array<Times, kWays> times_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_
