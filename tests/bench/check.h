// Whether Djinn computed what the local run did, and moved what it had to.
#ifndef TESTS_BENCH_CHECK_H_
#define TESTS_BENCH_CHECK_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/strings/string_view.h"
#include "djinn/statistics.h"

namespace djinn::bench {

// How far results were from the expected ones, over any number of them.
class Agreement {
 public:
  // Both on the CPU. A difference in shape, or NaN on one side, is infinite.
  void Add(const at::Tensor& expected, const at::Tensor& actual);

  // "12 results, equal bits" or "12 results, within 3e-07". `what` is the
  // plural of what they are.
  std::string Describe(absl::string_view what) const;

  // Appends what is wrong unless there were results and each was within
  // `tolerance` times the larger of 1 and the largest expected value in it.
  void ExpectWithin(double tolerance, absl::string_view what,
                    std::string* error) const;

 private:
  int count_ = 0;
  bool equal_bits_ = true;
  double difference_ = 0;
};

// What happened between two readings of the counters.
Statistics operator-(const Statistics& after, const Statistics& before);

// Appends "WHAT is VALUE, not at least LEAST" (at most) to `error` if so. A
// text that is long already stays: one cause often shows in every round.
void ExpectAtLeast(absl::string_view what, uint64_t value, uint64_t least,
                   std::string* error);
void ExpectAtMost(absl::string_view what, uint64_t value, uint64_t most,
                  std::string* error);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_CHECK_H_
