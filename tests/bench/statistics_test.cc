#include "tests/bench/statistics.h"

#include <vector>

#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

TEST(PercentileTest, InterpolatesBetweenRanks) {
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2, 5}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2, 5}, 50), 3);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2, 5}, 90), 4.6);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2, 5}, 100), 5);
}

TEST(PercentileTest, OneSampleIsEveryPercentile) {
  EXPECT_DOUBLE_EQ(Percentile({7}, 1), 7);
  EXPECT_DOUBLE_EQ(Percentile({7}, 99), 7);
}

TEST(MedianTest, EvenNumberGivesTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(Median({1, 2, 10, 20}), 6);
}

TEST(MedianTest, IgnoresOneWildSample) {
  EXPECT_DOUBLE_EQ(Median({1, 1, 1, 1, 1000}), 1);
}

TEST(GeometricMeanTest, ReciprocalsHaveMeanOne) {
  const std::vector<double> values = {0.25, 4, 0.5, 2};
  EXPECT_DOUBLE_EQ(GeometricMean(values), 1);
}

TEST(MedianIntervalTest, LeavesOutTheOutermostRanks) {
  std::vector<double> samples;
  for (int i = 1; i <= 20; ++i) samples.push_back(i);
  const Interval interval = MedianInterval(samples);
  EXPECT_DOUBLE_EQ(interval.low, 6);
  EXPECT_DOUBLE_EQ(interval.median, 10.5);
  EXPECT_DOUBLE_EQ(interval.high, 15);
}

TEST(MedianIntervalTest, FewSamplesGiveTheirWholeRange) {
  const Interval interval = MedianInterval({3, 1, 2});
  EXPECT_DOUBLE_EQ(interval.low, 1);
  EXPECT_DOUBLE_EQ(interval.median, 2);
  EXPECT_DOUBLE_EQ(interval.high, 3);
}

TEST(SeriesTest, SummarisesByRound) {
  Series series;
  EXPECT_TRUE(series.empty());
  series.StartRound();
  EXPECT_TRUE(series.empty());
  series.Add(1);
  series.Add(3);
  series.Add(2);
  series.AddRound({9});
  EXPECT_FALSE(series.empty());
  EXPECT_EQ(series.All(), (std::vector<double>{1, 3, 2, 9}));
  EXPECT_EQ(series.RoundMedians(), (std::vector<double>{2, 9}));
}

TEST(RatioTest, PairsRoundsSoThatSlowStretchesCancel) {
  Series fast, slow;
  for (const double noise : {1.0, 5.0, 2.0}) {
    fast.AddRound({10 * noise});
    slow.AddRound({20 * noise});
  }
  const Interval ratio = PairedRatio(slow, fast);
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  EXPECT_DOUBLE_EQ(ratio.median, 2);
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

TEST(RatioTest, UnpairedTakesTheMedianOfTheOther) {
  Series numerator, denominator;
  numerator.AddRound({6});
  denominator.AddRound({1});
  denominator.AddRound({2});
  denominator.AddRound({100});
  EXPECT_DOUBLE_EQ(UnpairedRatio(numerator, denominator).median, 3);
}

}  // namespace
}  // namespace djinn::bench
