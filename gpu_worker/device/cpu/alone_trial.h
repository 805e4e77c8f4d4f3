// Whether a call may be carried out by one thread where every bit counts.
//
// A small call is done sooner by one thread than by all, whom it takes time to
// wake; but where the work is divided sums may end in other bits, and strict
// mode promises those of all threads, which are local PyTorch's with as many.
// How a kernel divides its work depends on sizes, not on values, so in some
// runs it is carried out both ways besides, on operands made up for it, and
// every bit compared. One whose results were equal in kComparisons runs that
// could tell is left to one thread from then on, unless all threads gain a good
// deal: as a rule, and where the others are asleep when the call begins.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CPU_ALONE_TRIAL_H_
#define GPU_WORKER_DEVICE_CPU_ALONE_TRIAL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/mutex.h"

namespace djinn::worker {

class AloneTrial {
 public:
  enum class Way { kTogether, kAlone, kBoth };

  // There are so many ways for one thread to carry the call out; each is tried
  // until one bit is another.
  explicit AloneTrial(uint32_t alone_ways = 1) : alone_ways_(alone_ways) {}

  // What an earlier trial is said to have found: that all threads carry the
  // call out, which is always right, or that one does in this way, which is
  // compared as ever, but from the first run on. Before the first run.
  void Start(bool alone, uint32_t alone_way) {
    if (!alone) return GiveUp();
    runs_.store(kRuns, std::memory_order_relaxed);
    if (alone_way < alone_ways_) alone_way_ = alone_way;
  }
  // Nothing is to be tried any more; whether one thread carries it out.
  std::optional<bool> decided() const {
    const Way way = way_.load(std::memory_order_acquire);
    if (way == Way::kBoth) return std::nullopt;
    return way == Way::kAlone;
  }

  // What all threads are taken to cost: they keep the processors from sessions'
  // threads and, on one machine, from the client's.
  static uint64_t CostTogether(uint64_t nanoseconds) {
    return nanoseconds + nanoseconds / 3;
  }

  // Runs before the first comparison: what runs a few times only is not worth
  // it.
  static constexpr uint32_t kRuns = 16;
  // Runs that could tell, all equal, and elements in which they could; and runs
  // compared at most.
  static constexpr int kComparisons = 16;
  static constexpr uint64_t kTellingElements = 64;
  static constexpr int kMaxComparisons = 64;
  // After as many, one thread that takes half as long again is tried no more.
  static constexpr int kFirstComparisons = 3;
  // Bytes that a call compared makes, and of its operands, at most: larger ones
  // gain from all threads.
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  static constexpr size_t kMaxOperandBytes = size_t{4} << 20;

  // For a run that begins.
  Way Next() {
    const Way way = way_.load(std::memory_order_acquire);
    if (way != Way::kBoth) return way;
    return runs_.fetch_add(1, std::memory_order_relaxed) < kRuns
               ? Way::kTogether
               : Way::kBoth;
  }

  uint32_t runs() const { return runs_.load(std::memory_order_relaxed); }
  // Which of one thread's ways is tried, or was found.
  uint32_t alone_way() const {
    return alone_way_.load(std::memory_order_acquire);
  }

  struct Comparison {
    bool equal = false;
    // Of the elements compared, how many could have differed: not those that
    // are zero, what the one before them is or, as sums of whole numbers are,
    // so round that any order may give them.
    uint64_t elements = 0;
    uint64_t telling = 0;
    // What the run itself took, and what one thread did.
    uint64_t together_nanoseconds = 0;
    uint64_t alone_nanoseconds = 0;
  };
  void Compared(const Comparison& comparison);
  // The way that is tried makes something else: the next one is, if any.
  void Refuse();

  // It is known to give the same: one thread carries it out for good.
  void LeaveToOne() { way_.store(Way::kAlone, std::memory_order_relaxed); }
  // The call cannot be compared: all threads carry it out for good.
  void GiveUp() { way_.store(Way::kTogether, std::memory_order_relaxed); }

 private:
  void RefuseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint32_t alone_ways_;
  std::atomic<uint32_t> alone_way_{0};
  std::atomic<Way> way_{Way::kBoth};
  std::atomic<uint32_t> runs_{0};
  Mutex mu_;
  int comparisons_ ABSL_GUARDED_BY(mu_) = 0;
  int could_tell_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t telling_ ABSL_GUARDED_BY(mu_) = 0;
  // In nanoseconds, of each comparison.
  std::vector<uint64_t> together_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> alone_ ABSL_GUARDED_BY(mu_);
};

// Adds to `comparison` how many elements of `size` bytes there are, and how
// many of them are telling; one of 4 or 8 bytes is round if its lowest byte is
// zero. Bytes that make no whole element do not count.
void CountTelling(const char* data, size_t bytes, size_t element_size,
                  AloneTrial::Comparison* comparison);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_ALONE_TRIAL_H_
