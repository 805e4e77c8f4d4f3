#include "gpu_worker/supervisor/joined_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns what an executor of this tenant with these numbers reports.
v1::ExecutorMetrics Reported(double runs, double sessions, double pressure,
                             const std::string& tenant) {
  Exposition metrics;
  metrics.Counter("djinn_worker_runs_total", "Runs executed.", runs);
  metrics.Gauge("djinn_worker_sessions", "Sessions.", sessions,
                {{"tenant", tenant}});
  metrics.Gauge("djinn_worker_memory_pressure", "Pressure.", pressure);
  DurationHistogram times{absl::Milliseconds(1)};
  times.Observe(absl::Milliseconds(3));
  metrics.Histogram("djinn_worker_step_seconds", "Times.", times);
  return JoinedMetrics::Encode(metrics);
}

std::string Text(const JoinedMetrics& joined) {
  Exposition out;
  joined.AddTo(&out);
  return out.Text();
}

TEST(JoinedMetricsTest, NumbersOfExecutorsAreSummedAndTenantsToldApart) {
  JoinedMetrics joined;
  ASSERT_TRUE(JoinedMetrics::Check(Reported(3, 1, 1, "a")).ok());
  joined.Add(Reported(3, 1, 1, "a"), "a");
  joined.Add(Reported(4, 2, 2, "b"), "b");
  const std::string text = Text(joined);
  EXPECT_THAT(text, HasSubstr("djinn_worker_runs_total 7"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_sessions{tenant=\"a\"} 1"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_sessions{tenant=\"b\"} 2"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_step_seconds_count 2"));
  // The fullest one counts.
  EXPECT_THAT(text, HasSubstr("djinn_worker_memory_pressure 2"));
}

TEST(JoinedMetricsTest, ExecutorSpeaksForItsOwnTenantOnly) {
  JoinedMetrics joined;
  joined.Add(Reported(3, 9, 1, "b"), "a");
  EXPECT_THAT(Text(joined), HasSubstr("djinn_worker_sessions{tenant=\"a\"} 9"));
  EXPECT_THAT(Text(joined), Not(HasSubstr("\"b\"")));
}

TEST(JoinedMetricsTest, CountersOutliveTheirExecutorAndGaugesDoNot) {
  JoinedMetrics joined;
  joined.AddPast(Reported(3, 9, 2, "a"), "a");
  joined.Add(Reported(1, 1, 0, "a"), "a");
  const std::string text = Text(joined);
  EXPECT_THAT(text, HasSubstr("djinn_worker_runs_total 4"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_sessions{tenant=\"a\"} 1"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_step_seconds_count 2"));
}

TEST(JoinedMetricsTest, FamiliesOfTheSupervisorStandAlone) {
  JoinedMetrics joined;
  joined.Add(Reported(3, 1, 1, "a"), "a");
  Exposition out;
  out.Counter("djinn_worker_runs_total", "Runs.", 100);
  joined.AddTo(&out);
  EXPECT_THAT(out.Text(), HasSubstr("djinn_worker_runs_total 100"));
}

TEST(JoinedMetricsTest, WhatWouldBreakAScrapeIsRefused) {
  const auto bad = [](auto change) {
    v1::ExecutorMetrics metrics = Reported(1, 1, 1, "a");
    change(metrics.mutable_families(0));
    return absl::IsInvalidArgument(JoinedMetrics::Check(metrics));
  };
  EXPECT_FALSE(bad([](v1::MetricFamily*) {}));
  EXPECT_FALSE(bad([](v1::MetricFamily* f) {
    f->set_name("grpc_server_call_started_total");
  }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) { f->set_name("process_fds"); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) { f->set_name("up"); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) { f->set_name("djinn_a 1\nup"); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) { f->set_help("x\nup 0"); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) { f->clear_type(); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) {
    f->mutable_metrics(0)->add_labels()->set_name("a\"");
  }));
  EXPECT_TRUE(
      bad([](v1::MetricFamily* f) { f->mutable_metrics(0)->add_bounds(1); }));
  EXPECT_TRUE(bad([](v1::MetricFamily* f) {
    for (int i = 0; i < 200000; ++i) f->add_metrics()->set_value(i + 1.5);
  }));
}

TEST(JoinedMetricsTest, PastSeriesAreBoundedAndTheFirstLossIsLogged) {
  JoinedMetrics joined;
  const auto add = [&](int first, int count) {
    v1::ExecutorMetrics metrics;
    for (int i = first; i < first + count; ++i) {
      // Families without a series count, too.
      v1::MetricFamily* const family = metrics.add_families();
      family->set_name(absl::StrCat("djinn_worker_x", i));
      family->set_type(v1::MetricFamily::COUNTER);
    }
    joined.AddPast(metrics, "a");
  };
  testing::internal::CaptureStderr();
  add(0, 20000);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  add(20000, 2);
  add(20002, 1);
  // A family that is there already loses nothing.
  add(0, 1);
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t at = log.find("too many series");
  EXPECT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("too many series", at + 1), std::string::npos) << log;
}

TEST(JoinedMetricsTest, HistogramWithOtherBoundsIsLeftOut) {
  JoinedMetrics joined;
  joined.Add(Reported(1, 1, 1, "a"), "a");
  v1::ExecutorMetrics other = Reported(1, 1, 1, "a");
  for (v1::MetricFamily& family : *other.mutable_families()) {
    for (v1::Metric& metric : *family.mutable_metrics()) {
      metric.clear_bounds();
      metric.clear_cumulative_counts();
    }
  }
  joined.Add(other, "a");
  EXPECT_THAT(Text(joined), HasSubstr("djinn_worker_step_seconds_count 1"));
}

}  // namespace
}  // namespace djinn::worker
