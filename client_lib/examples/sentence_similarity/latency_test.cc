#include "client_lib/examples/sentence_similarity/latency.h"

#include <vector>

#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

// Runs that take so many milliseconds each, on a clock that only they move.
absl::StatusOr<Latency> Measure(const std::vector<int>& milliseconds) {
  absl::Time time = absl::UnixEpoch();
  size_t runs = 0;
  return MeasureLatency(
      [&] {
        if (runs == milliseconds.size()) return absl::AbortedError("no more");
        time += absl::Milliseconds(milliseconds[runs++]);
        return absl::OkStatus();
      },
      static_cast<int>(milliseconds.size()) - 1, [&] { return time; });
}

TEST(MeasureLatencyTest, KeepsTheFirstRunApart) {
  const auto latency = Measure({100, 3, 1, 2});
  ASSERT_TRUE(latency.ok()) << latency.status();
  EXPECT_EQ(latency->first, absl::Milliseconds(100));
  EXPECT_EQ(latency->warm_median, absl::Milliseconds(2));
}

TEST(MeasureLatencyTest, MedianOfAnEvenNumberIsInTheMiddle) {
  const auto latency = Measure({100, 9, 1, 2, 4});
  ASSERT_TRUE(latency.ok()) << latency.status();
  EXPECT_EQ(latency->warm_median, absl::Milliseconds(3));
}

TEST(MeasureLatencyTest, StopsAtTheFirstError) {
  EXPECT_EQ(Measure({5}).status().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace djinn::examples
