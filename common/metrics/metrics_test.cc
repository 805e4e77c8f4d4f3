#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/count_histogram.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/tenant_labels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DurationHistogramTest, CountsUpToAndIncludingTheBound) {
  DurationHistogram histogram(absl::Milliseconds(5));
  histogram.Observe(absl::Milliseconds(5));
  histogram.Observe(absl::Milliseconds(5) + absl::Nanoseconds(1));
  histogram.Observe(absl::Hours(1));
  histogram.Observe(-absl::Seconds(1));
  EXPECT_EQ(histogram.count(0), 2);
  EXPECT_EQ(histogram.count(1), 1);
  EXPECT_EQ(histogram.count(DurationHistogram::kBounds), 1);
  EXPECT_EQ(histogram.bound(0), absl::Milliseconds(5));
  EXPECT_EQ(histogram.bound(14), absl::Milliseconds(5) * 16384);
  EXPECT_EQ(histogram.sum(),
            absl::Hours(1) + absl::Milliseconds(10) + absl::Nanoseconds(1));
}

TEST(DurationHistogramTest, LosesNothingUnderManyWriters) {
  DurationHistogram histogram;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int n = 0; n < 10000; ++n) histogram.Observe(absl::Milliseconds(1));
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(histogram.count(0), 40000);
  EXPECT_EQ(histogram.sum(), absl::Seconds(40));
}

TEST(ExpositionTest, WritesTextFormat) {
  Exposition exposition;
  exposition.Counter("djinn_things_total", "Things.", 2, {{"kind", "a\"b"}});
  exposition.Gauge("djinn_level", "A level.", -1.5);
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE djinn_things_total counter\n"));
  EXPECT_THAT(text, HasSubstr("djinn_things_total{kind=\"a\\\"b\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("# HELP djinn_level A level.\n"));
  EXPECT_THAT(text, HasSubstr("djinn_level -1.5\n"));
}

TEST(ExpositionTest, DeclaredFamiliesAppearWithTheirFirstValue) {
  Exposition exposition;
  Exposition::Values levels =
      exposition.Gauges("djinn_level", "A level.", {"tenant", "kind"});
  exposition.Counters("djinn_things_total", "Things.", {"kind"});
  EXPECT_EQ(exposition.Text(), "");
  levels.Add(1, {"a", "x"});
  levels.Add(2, {"a", "x"});
  EXPECT_TRUE(exposition.Has("djinn_level"));
  EXPECT_EQ(exposition.Text(),
            "# HELP djinn_level A level.\n"
            "# TYPE djinn_level gauge\n"
            "djinn_level{tenant=\"a\",kind=\"x\"} 3\n");
}

TEST(ExpositionTest, SumsEqualLabels) {
  Exposition exposition;
  exposition.Gauge("djinn_level", "A level.", 1, {{"tenant", "_other"}});
  exposition.Gauge("djinn_level", "A level.", 2, {{"tenant", "_other"}});
  exposition.Gauge("djinn_level", "A level.", 4, {{"tenant", "a"}});
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("djinn_level{tenant=\"_other\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("djinn_level{tenant=\"a\"} 4\n"));
}

TEST(ExpositionTest, HistogramsAreCumulative) {
  DurationHistogram histogram(absl::Milliseconds(10));
  histogram.Observe(absl::Milliseconds(1));
  histogram.Observe(absl::Milliseconds(15));
  histogram.Observe(absl::Hours(10));
  Exposition exposition;
  exposition.Histogram("djinn_wait_seconds", "Waits.", histogram);
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("djinn_wait_seconds_bucket{le=\"0.01\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("djinn_wait_seconds_bucket{le=\"0.02\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("djinn_wait_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("djinn_wait_seconds_count 3\n"));
}

TEST(ExpositionTest, CountsHaveBoundsOfWholeNumbers) {
  CountHistogram histogram;
  for (const uint64_t value : {1, 2, 3, 256, 257}) histogram.Observe(value);
  Exposition exposition;
  exposition.Histogram("djinn_rows", "Rows.", histogram);
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("djinn_rows_bucket{le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("djinn_rows_bucket{le=\"2\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("djinn_rows_bucket{le=\"4\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("djinn_rows_bucket{le=\"256\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("djinn_rows_bucket{le=\"+Inf\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("djinn_rows_sum 519\n"));
}

TEST(LabelledCounterTest, CountsByLabels) {
  LabelledCounter counter("djinn_refusals_total", "Refusals.",
                          {"tenant", "reason"});
  counter.Add({"a", "FULL"});
  counter.Add({"a", "FULL"}, 2);
  counter.Add({"b", "FULL"});
  Exposition exposition;
  counter.Collect(&exposition);
  EXPECT_THAT(
      exposition.Text(),
      HasSubstr("djinn_refusals_total{tenant=\"a\",reason=\"FULL\"} 3"));
}

TEST(LabelledCounterTest, IsDeclaredBeforeItCounts) {
  const LabelledCounter counter("djinn_refusals_total", "Refusals.",
                                {"tenant", "reason"});
  Exposition exposition;
  counter.Collect(&exposition);
  EXPECT_EQ(exposition.Text(), "");
  EXPECT_FALSE(exposition.Has("djinn_refusals_total"));
  int families = 0;
  exposition.Visit([&](const prometheus::MetricFamily& family,
                       const std::vector<std::string>& labels) {
    ++families;
    EXPECT_EQ(family.name, "djinn_refusals_total");
    EXPECT_EQ(family.help, "Refusals.");
    EXPECT_THAT(labels, ElementsAre("tenant", "reason"));
  });
  EXPECT_EQ(families, 1);
}

TEST(ProcessMetricsTest, DescribesThisProcess) {
  Exposition exposition;
  ProcessMetrics("tester")(&exposition);
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("djinn_build_info{role=\"tester\",version="));
  for (const char* name :
       {"process_cpu_seconds_total", "process_open_fds",
        "process_resident_memory_bytes", "process_start_time_seconds"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", name, " ")));
  }
}

TEST(TenantLabelsTest, TheFirstKeepTheirNames) {
  TenantLabels labels;
  for (size_t i = 0; i < TenantLabels::kMost; ++i) {
    EXPECT_THAT(labels.For(absl::StrCat("t", i)), Not("_other"));
  }
  EXPECT_EQ(labels.For("late"), "_other");
  EXPECT_EQ(labels.For("t0"), "t0");
  EXPECT_EQ(labels.For(""), "");
}

}  // namespace
}  // namespace djinn
