// Checks that Djinn computed the same as the local run, and moved the expected
// bytes.
#ifndef TESTS_BENCH_CHECK_H_
#define TESTS_BENCH_CHECK_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/strings/string_view.h"
#include "djinn/statistics.h"

namespace djinn::bench {

// The largest difference between results and the expected ones, over any number
// of results.
class Agreement {
 public:
  // Adds a result. Both tensors are on the CPU. A difference in shape, or NaN
  // on one side, is infinite.
  void Add(const at::Tensor& expected, const at::Tensor& actual);

  // Returns a text such as "12 results, equal bits" or "12 results, within
  // 3e-07". `what` is the plural noun.
  std::string Describe(absl::string_view what) const;

  // Appends the fault to `error`, unless there were results and each was within
  // `tolerance` times the larger of 1 and its largest expected value.
  void ExpectWithin(double tolerance, absl::string_view what,
                    std::string* error) const;

 private:
  int count_ = 0;
  bool equal_bits_ = true;
  double difference_ = 0;
};

// Returns the changes between two readings of the counters.
Statistics operator-(const Statistics& after, const Statistics& before);

// If the value is below the limit (or above it), appends "WHAT is VALUE, not at
// least LEAST" (or "at most") to `error`. Appends nothing to a long text,
// because one cause often shows in every round.
void ExpectAtLeast(absl::string_view what, uint64_t value, uint64_t least,
                   std::string* error);
void ExpectAtMost(absl::string_view what, uint64_t value, uint64_t most,
                  std::string* error);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_CHECK_H_
