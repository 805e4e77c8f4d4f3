// Adds numbers from untrusted sources: an overflow results in the largest
// value.
#ifndef COMMON_BASE_SATURATING_H_
#define COMMON_BASE_SATURATING_H_

#include <cstdint>
#include <limits>

namespace djinn {

constexpr uint64_t SaturatingSum(uint64_t a, uint64_t b) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return b > kMost - a ? kMost : a + b;
}

}  // namespace djinn

#endif  // COMMON_BASE_SATURATING_H_
