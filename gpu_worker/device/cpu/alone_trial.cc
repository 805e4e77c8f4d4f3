#include "gpu_worker/device/cpu/alone_trial.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace djinn::worker {
namespace {

uint64_t Median(std::vector<uint64_t>* values) {
  const auto middle =
      values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

}  // namespace

void AloneTrial::Compared(const Comparison& comparison) {
  MutexLock lock(&mu_);
  if (way_.load(std::memory_order_relaxed) != Way::kBoth) return;
  if (!comparison.equal) return RefuseLocked();
  together_.push_back(comparison.together_nanoseconds);
  alone_.push_back(comparison.alone_nanoseconds);
  const uint64_t together = Median(&together_);
  const uint64_t alone = Median(&alone_);
  if (comparison.elements > 0 &&
      comparison.telling >= (comparison.elements + 3) / 4) {
    ++could_tell_;
    telling_ += comparison.telling;
  }
  ++comparisons_;
  if (comparisons_ >= kFirstComparisons && alone > together + together / 2) {
    return GiveUp();
  }
  if (could_tell_ < kComparisons || telling_ < kTellingElements) {
    if (comparisons_ >= kMaxComparisons) GiveUp();
    return;
  }
  way_.store(alone <= CostTogether(together) ? Way::kAlone : Way::kTogether,
             std::memory_order_release);
}

void AloneTrial::Refuse() {
  MutexLock lock(&mu_);
  if (way_.load(std::memory_order_relaxed) == Way::kBoth) RefuseLocked();
}

void AloneTrial::RefuseLocked() {
  if (alone_way_.load(std::memory_order_relaxed) + 1 >= alone_ways_) {
    return GiveUp();
  }
  alone_way_.fetch_add(1, std::memory_order_release);
  comparisons_ = could_tell_ = 0;
  telling_ = 0;
  together_.clear();
  alone_.clear();
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
