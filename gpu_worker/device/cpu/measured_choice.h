// Which of several ways to carry out a node is taken, where the client lets the
// worker choose. What is faster depends on operator, shape and machine, so it
// is measured: of every kPeriod runs each way is tried a few times, and the
// rest take the one whose best time was shortest.
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

  MeasuredChoice() { Forget(); }

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
    std::atomic<uint64_t>& best = best_[way];
    if (nanoseconds < best.load(std::memory_order_relaxed)) {
      best.store(nanoseconds, std::memory_order_relaxed);
    }
  }

 private:
  void Forget() {
    for (std::atomic<uint64_t>& best : best_) {
      best.store(UINT64_MAX, std::memory_order_relaxed);
    }
  }

  size_t Best() const {
    size_t way = 0;
    for (size_t i = 1; i < kWays; ++i) {
      if (best_[i].load(std::memory_order_relaxed) <
          best_[way].load(std::memory_order_relaxed)) {
        way = i;
      }
    }
    return way;
  }

  std::atomic<uint32_t> runs_{0};
  std::array<std::atomic<uint64_t>, kWays> best_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEASURED_CHOICE_H_
