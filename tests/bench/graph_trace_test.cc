#include "tests/bench/graph_trace.h"

#include <set>

#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

TEST(GraphTraceTest, IsTheSameForASeed) {
  const std::vector<uint32_t> trace = MakeGraphTrace(7, 5000);
  EXPECT_EQ(trace.size(), 5000u);
  EXPECT_EQ(trace, MakeGraphTrace(7, 5000));
  EXPECT_NE(trace, MakeGraphTrace(8, 5000));
}

TEST(GraphTraceTest, TheOptimalPolicyKeepsWhatIsUsedSoonest) {
  // Belady's example: with three places 9 of 20 miss.
  const std::vector<uint32_t> pages = {7, 0, 1, 2, 0, 3, 0, 4, 2, 3,
                                       0, 3, 2, 1, 2, 0, 1, 7, 0, 1};
  EXPECT_EQ(OptimalHits(pages, 3), 11u);
  EXPECT_EQ(OptimalHits({1, 1, 1}, 1), 2u);
  EXPECT_EQ(OptimalHits({1, 2, 1, 2}, 1), 0u);
}

TEST(GraphTraceTest, WithRoomForAllOnlyTheFirstOfEachMisses) {
  const std::vector<uint32_t> trace = MakeGraphTrace(1, 5000);
  const std::set<uint32_t> distinct(trace.begin(), trace.end());
  EXPECT_EQ(OptimalHits(trace, distinct.size()),
            trace.size() - distinct.size());
}

}  // namespace
}  // namespace djinn::bench
