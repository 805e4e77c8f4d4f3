#include "gpu_worker/supervisor/metrics/joined_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/call_metrics.h"
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
  metrics.Counter("djinn_worker_runs_total", "Runs that the worker executed.",
                  runs);
  metrics.Gauge("djinn_worker_sessions", "Sessions.", sessions,
                {{"tenant", tenant}});
  metrics.Gauge("djinn_worker_memory_pressure", "Pressure.", pressure);
  DurationHistogram times{absl::Milliseconds(1)};
  times.Observe(absl::Milliseconds(3));
  metrics.Histogram("djinn_worker_step_seconds", "Times.", times);
  return JoinedMetrics::Encode(metrics);
}

// Returns the families that honest executors declare.
const ExecutorFamilies& Families() {
  static const auto* const kFamilies = [] {
    Exposition declared;
    declared.Counters("djinn_requests_total", "Runs.", {"tenant", "code"});
    v1::ExecutorMetrics metrics = JoinedMetrics::Encode(declared);
    metrics.MergeFrom(Reported(0, 0, 0, ""));
    return new ExecutorFamilies(FamiliesOf(metrics));
  }();
  return *kFamilies;
}

absl::Status Check(const v1::ExecutorMetrics& metrics) {
  return JoinedMetrics::Check(Families(), metrics);
}

std::string Text(const JoinedMetrics& joined) {
  Exposition out;
  joined.AddTo(&out);
  return out.Text();
}

TEST(JoinedMetricsTest, NumbersOfExecutorsAreSummedAndTenantsToldApart) {
  JoinedMetrics joined;
  ASSERT_TRUE(Check(Reported(3, 1, 1, "a")).ok());
  joined.Add(Families(), Reported(3, 1, 1, "a"), "a");
  joined.Add(Families(), Reported(4, 2, 2, "b"), "b");
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
  joined.Add(Families(), Reported(3, 9, 1, "b"), "a");
  EXPECT_THAT(Text(joined), HasSubstr("djinn_worker_sessions{tenant=\"a\"} 9"));
  EXPECT_THAT(Text(joined), Not(HasSubstr("\"b\"")));
}

TEST(JoinedMetricsTest, CountersOutliveTheirExecutorAndGaugesDoNot) {
  JoinedMetrics joined;
  joined.AddPast(Families(), Reported(3, 9, 2, "a"), "a");
  joined.Add(Families(), Reported(1, 1, 0, "a"), "a");
  const std::string text = Text(joined);
  EXPECT_THAT(text, HasSubstr("djinn_worker_runs_total 4"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_sessions{tenant=\"a\"} 1"));
  EXPECT_THAT(text, HasSubstr("djinn_worker_step_seconds_count 2"));
}

TEST(JoinedMetricsTest, FamiliesOfTheSupervisorStandAlone) {
  JoinedMetrics joined;
  joined.Add(Families(), Reported(3, 1, 1, "a"), "a");
  Exposition out;
  out.Counter("djinn_worker_runs_total", "Runs.", 100);
  joined.AddTo(&out);
  EXPECT_THAT(out.Text(), HasSubstr("djinn_worker_runs_total 100"));
}

TEST(JoinedMetricsTest, MetricsThatWouldBreakAScrapeAreRefused) {
  const auto bad = [](auto change) {
    v1::ExecutorMetrics metrics = Reported(1, 1, 1, "a");
    change(metrics.mutable_families(0));
    return absl::IsInvalidArgument(Check(metrics));
  };
  EXPECT_FALSE(bad([](v1::MetricFamily*) {}));
  EXPECT_FALSE(bad([](v1::MetricFamily* f) {
    f->set_name("grpc_server_call_started_total");
    f->set_type(v1::MetricFamily::COUNTER);
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

// An executor's requests that ended with `count` codes which are none.
v1::ExecutorMetrics Invented(int count) {
  Exposition metrics;
  for (int i = 0; i < count; ++i) {
    metrics.Counter("djinn_requests_total", "Runs.", 1,
                    {{"tenant", "a"}, {"code", absl::StrCat(i)}});
  }
  return JoinedMetrics::Encode(metrics);
}

TEST(JoinedMetricsTest, ATenantsPastSeriesAreBoundedAndTheFirstLossIsLogged) {
  JoinedMetrics joined;
  testing::internal::CaptureStderr();
  joined.AddPast(Families(), Invented(1000), "a");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  joined.AddPast(Families(), Invented(2000), "a");
  joined.AddPast(Families(), Invented(2001), "a");
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t at = log.find("too many series");
  EXPECT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("too many series", at + 1), std::string::npos) << log;
  // A series that is there already loses nothing.
  EXPECT_THAT(Text(joined), HasSubstr("code=\"7\"} 3"));
  EXPECT_THAT(Text(joined), Not(HasSubstr("code=\"1000\"")));
  // Another tenant's are kept.
  joined.AddPast(Families(), Reported(3, 1, 1, "b"), "b");
  EXPECT_THAT(Text(joined), HasSubstr("djinn_worker_runs_total 3"));
}

TEST(JoinedMetricsTest, NoExecutorDecidesTheFormOfOthersMetrics) {
  const v1::ExecutorMetrics honest = Reported(1, 1, 1, "a");
  for (int i = 0; i < honest.families_size(); ++i) {
    v1::ExecutorMetrics lie = honest;
    v1::MetricFamily* const family = lie.mutable_families(i);
    family->set_type(family->type() == v1::MetricFamily::GAUGE
                         ? v1::MetricFamily::COUNTER
                         : v1::MetricFamily::GAUGE);
    EXPECT_TRUE(absl::IsInvalidArgument(Check(lie))) << family->name();
    lie = honest;
    v1::Metric* const metric = lie.mutable_families(i)->mutable_metrics(0);
    metric->clear_bounds();
    metric->clear_cumulative_counts();
    metric->add_bounds(7);
    metric->add_cumulative_counts(1);
    EXPECT_TRUE(absl::IsInvalidArgument(Check(lie))) << i;
  }
  // The program's help stands, and a family that it lacks is left out.
  v1::ExecutorMetrics lie = honest;
  for (v1::MetricFamily& family : *lie.mutable_families()) {
    family.set_help("Lies.");
  }
  v1::MetricFamily* const invented = lie.add_families();
  invented->set_name("djinn_invented_total");
  invented->set_type(v1::MetricFamily::COUNTER);
  invented->add_metrics()->set_value(1);
  ASSERT_TRUE(Check(lie).ok());
  JoinedMetrics joined;
  // So is a label that the family lacks.
  v1::MetricLabel* const label =
      lie.mutable_families(0)->mutable_metrics(0)->add_labels();
  label->set_name("invention");
  joined.AddPast(Families(), lie, "a");
  EXPECT_THAT(Text(joined), HasSubstr("Runs that the worker executed."));
  EXPECT_THAT(Text(joined), Not(HasSubstr("Lies")));
  EXPECT_THAT(Text(joined), Not(HasSubstr("invented")));
}

TEST(JoinedMetricsTest, CallsAreDeclaredAsTheyAreCounted) {
  Exposition declared;
  CallMetrics::Declare(&declared);
  const ExecutorFamilies families = FamiliesOf(JoinedMetrics::Encode(declared));
  EXPECT_EQ(families.size(), 4u);
  CallMetrics calls;
  calls.Started("djinn.v1.Session/Attach");
  calls.Ended("djinn.v1.Session/Attach", "OK", absl::Seconds(1), CallSizes());
  Exposition metrics;
  calls.Collect(&metrics);
  const v1::ExecutorMetrics encoded = JoinedMetrics::Encode(metrics);
  EXPECT_EQ(encoded.families_size(), 4);
  EXPECT_TRUE(JoinedMetrics::Check(families, encoded).ok());
  JoinedMetrics joined;
  joined.Add(families, encoded, "a");
  EXPECT_EQ(Text(joined), metrics.Text());
}

}  // namespace
}  // namespace djinn::worker
