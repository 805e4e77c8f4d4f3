// Which of several ways to carry out a node is taken, where the client lets the
// worker choose. What is faster depends on operator, shape and machine, so it
// is measured: of every kPeriod runs each way is tried a few times, and the
// rest take the one that took least on the average, the longest time left out:
// threads that happen to be awake make a way fast that as a rule wakes them.
//
// Thread-safe: runs of the same plan in several threads count together, and may
// mix up their measurements, which costs time only.
#ifndef GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_
#define GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace djinn::worker {

struct MeasuredTurn {
  size_t way = 0;
  bool measured = false;
};

template <size_t kWays>
class MeasuredChoice {
 public:
  static constexpr uint32_t kTrials = 8;  // of each way
  static constexpr uint32_t kPeriod = 2048;
  static constexpr uint32_t kAllTrials = kTrials * kWays;

  // For a run that begins.
  MeasuredTurn Next() {
    const uint32_t turn =
        runs_.fetch_add(1, std::memory_order_relaxed) % kPeriod;
    if (turn >= kAllTrials) return {Best(), /*measured=*/false};
    if (turn == 0) Forget();
    return {turn / kTrials, /*measured=*/true};
  }

  // What a measured turn took.
  void Took(size_t way, uint64_t nanoseconds) {
    Times& times = times_[way];
    times.sum.fetch_add(nanoseconds, std::memory_order_relaxed);
    if (nanoseconds > times.longest.load(std::memory_order_relaxed)) {
      times.longest.store(nanoseconds, std::memory_order_relaxed);
    }
    times.count.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  struct Times {
    std::atomic<uint64_t> sum{0};
    std::atomic<uint64_t> longest{0};
    std::atomic<uint32_t> count{0};

    // The largest number where there are none.
    uint64_t Average() const {
      const uint64_t all = sum.load(std::memory_order_relaxed);
      const uint32_t number = count.load(std::memory_order_relaxed);
      if (number == 0) return UINT64_MAX;
      if (number == 1) return all;
      return (all - longest.load(std::memory_order_relaxed)) / (number - 1);
    }
  };

  void Forget() {
    for (Times& times : times_) {
      times.sum.store(0, std::memory_order_relaxed);
      times.longest.store(0, std::memory_order_relaxed);
      times.count.store(0, std::memory_order_relaxed);
    }
  }

  size_t Best() const {
    size_t way = 0;
    for (size_t i = 1; i < kWays; ++i) {
      if (times_[i].Average() < times_[way].Average()) way = i;
    }
    return way;
  }

  std::atomic<uint32_t> runs_{0};
  std::array<Times, kWays> times_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_
