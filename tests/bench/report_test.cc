#include "tests/bench/report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Series MakeSeries(const std::vector<double>& round_medians) {
  Series series;
  for (const double median : round_medians) series.AddRound({median});
  return series;
}

Row MakeRow(double djinn, double baseline, double alone) {
  Row row;
  row.benchmark = "encoder";
  row.variant = "1 x 32";
  row.djinn = MakeSeries({djinn, djinn, djinn});
  row.baseline = MakeSeries({baseline, baseline, baseline});
  row.baseline_alone = MakeSeries({alone, alone, alone});
  row.checked = "equal bits";
  SetRatio(&row);
  return row;
}

TEST(FormatTest, ChoosesTheUnit) {
  EXPECT_EQ(FormatSeconds(0), "0.00 ns");
  EXPECT_EQ(FormatSeconds(1.5e-6), "1.50 us");
  EXPECT_EQ(FormatSeconds(999.6e-6), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0.0234), "23.4 ms");
  EXPECT_EQ(FormatSeconds(123.4), "123 s");
  EXPECT_EQ(FormatBytes(640), "640 B");
  EXPECT_EQ(FormatBytes(1.5 * 1024 * 1024), "1.50 MiB");
  EXPECT_EQ(FormatRate(3e9, 2), "1.50 GB/s");
}

TEST(SetRatioTest, TakesTheAlternatingBaselineWhenBothAgree) {
  const Row row = MakeRow(2.0, 1.0, 0.96);
  EXPECT_DOUBLE_EQ(row.ratio->median, 2);
  EXPECT_FALSE(row.ratio_to_alone);
  EXPECT_THAT(row.notes, IsEmpty());
}

TEST(SetRatioTest, TakesTheBaselineWithoutDjinnWhenDjinnDisturbsIt) {
  const Row row = MakeRow(2.0, 1.0, 0.5);
  EXPECT_DOUBLE_EQ(row.ratio->median, 4);
  EXPECT_TRUE(row.ratio_to_alone);
  EXPECT_THAT(row.notes, ElementsAre(HasSubstr("ratio 2.00")));
}

TEST(SetRatioTest, NeverTakesTheSlowerBaseline) {
  const Row row = MakeRow(2.0, 1.0, 4.0);
  EXPECT_DOUBLE_EQ(row.ratio->median, 2);
  EXPECT_FALSE(row.ratio_to_alone);
  EXPECT_THAT(row.notes, ElementsAre(HasSubstr("ratio 0.50")));
}

TEST(SetRatioTest, NeedsBothSides) {
  Row row;
  row.baseline = MakeSeries({1});
  SetRatio(&row);
  EXPECT_FALSE(row.ratio.has_value());
}

TEST(GeometricMeanRowTest, MultipliesRatios) {
  const Row a = MakeRow(1.0, 1.0, 1.0);
  const Row b = MakeRow(4.0, 1.0, 1.0);
  EXPECT_DOUBLE_EQ(GeometricMeanRow({&a, &b}).ratio->median, 2);
}

TEST(FormatTableTest, ShowsBothTimesAndTheirRatio) {
  const std::string table = FormatTable({MakeRow(0.003, 0.002, 0.002)});
  EXPECT_THAT(table, HasSubstr("3.00 ms   2.00 ms  1.50 [1.50, 1.50]"));
  EXPECT_THAT(table, HasSubstr("equal bits\n"));
  EXPECT_THAT(table, Not(HasSubstr("WRONG")));
}

TEST(FormatTableTest, AWrongOutputReplacesTheCheck) {
  Row row = MakeRow(1, 1, 1);
  row.error = "losses differ by 0.5";
  const std::string table = FormatTable({row});
  EXPECT_THAT(table, HasSubstr("WRONG: losses differ by 0.5"));
  EXPECT_THAT(table, Not(HasSubstr("equal bits")));
}

TEST(FormatTableTest, ARowWithoutSamplesHasDashes) {
  Row row;
  row.benchmark = "encoder";
  row.error = "no cluster";
  EXPECT_THAT(FormatTable({row}), HasSubstr("WRONG: no cluster"));
}

TEST(MakeJsonTest, KeepsWhatWasSaidAboutTheRunAndEveryRow) {
  const nlohmann::json json =
      MakeJson({{"machine", "a toaster"}}, {MakeRow(2, 1, 0.5)});
  EXPECT_EQ(json["machine"], "a toaster");
  const nlohmann::json& row = json["results"].at(0);
  EXPECT_EQ(row["benchmark"], "encoder");
  EXPECT_EQ(row["correct"], true);
  EXPECT_EQ(row["djinn"]["p99"], 2.0);
  EXPECT_EQ(row["baseline_alone"]["samples"], 3);
  EXPECT_EQ(row["ratio"]["median"], 4.0);
  EXPECT_EQ(row["ratio_to"], "baseline_alone");
}

}  // namespace
}  // namespace djinn::bench
