#include "gpu_worker/device/cpu/alone_trial.h"

#include <algorithm>
#include <cstring>

namespace djinn::worker {

void AloneTrial::Compared(const Comparison& comparison) {
  MutexLock lock(&mu_);
  if (way_.load(std::memory_order_relaxed) != Way::kBoth) return;
  if (!comparison.equal) return GiveUp();
  together_ = std::min(together_, comparison.together_nanoseconds);
  alone_ = std::min(alone_, comparison.alone_nanoseconds);
  if (comparison.elements > 0 &&
      comparison.telling >= (comparison.elements + 3) / 4) {
    ++could_tell_;
    telling_ += comparison.telling;
  }
  ++comparisons_;
  if (comparisons_ >= kFirstComparisons && alone_ > together_ + together_ / 2) {
    return GiveUp();
  }
  if (could_tell_ < kComparisons || telling_ < kTellingElements) {
    if (comparisons_ >= kMaxComparisons) GiveUp();
    return;
  }
  way_.store(alone_ <= CostTogether(together_) ? Way::kAlone : Way::kTogether,
             std::memory_order_relaxed);
}

void CountTelling(const char* data, size_t bytes, size_t element_size,
                  AloneTrial::Comparison* comparison) {
  static constexpr char kZeros[16] = {};
  if (element_size == 0 || element_size > sizeof(kZeros)) return;
  const bool has_low_byte = element_size == 4 || element_size == 8;
  const char* before = kZeros;
  for (size_t at = 0; at + element_size <= bytes; at += element_size) {
    const char* const element = data + at;
    ++comparison->elements;
    if (std::memcmp(element, kZeros, element_size) != 0 &&
        std::memcmp(element, before, element_size) != 0 &&
        !(has_low_byte && *element == 0)) {
      ++comparison->telling;
    }
    before = element;
  }
}

}  // namespace djinn::worker
