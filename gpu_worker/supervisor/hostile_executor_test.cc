// Tests that an executor which its tenant has taken over harms nobody else by
// what it reports: it is ended, or what it says is left out.
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "common/trace/span.h"
#include "common/trace/span_exporter.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/report_check.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Takes all spans.
class GladCollector final : public SpanTransport {
 public:
  absl::Status Export(const opentelemetry::proto::collector::trace::v1::
                          ExportTraceServiceRequest& /*request*/,
                      absl::Duration /*timeout*/,
                      int64_t* /*rejected*/) override {
    return absl::OkStatus();
  }
  void Cancel() override {}
};

v1::FromExecutor SpansOf(const TraceContext& context, int count) {
  v1::FromExecutor message;
  for (int i = 0; i < count; ++i) {
    *message.mutable_spans()->add_spans() =
        MakeSpan(context, 4, "run", Span::SPAN_KIND_SERVER,
                 absl::FromUnixSeconds(1), absl::FromUnixSeconds(2));
  }
  return message;
}

// Tenant "evil" has executor 0 and lease "e1"; tenant "good" has executor 1 and
// lease "g1".
class HostileExecutorTest : public SupervisorTest {
 protected:
  HostileExecutorTest() {
    Step();
    Lease("evil", "e1");
    Lease("good", "g1");
    executor(0).SayReady();
    executor(1).SayReady();
    executor(0).Report(Holding("evil", "e1", 1, 1));
    executor(1).Report(Holding("good", "g1", 1, 1));
    Step();
  }

  // Returns whether the hostile executor is ended for it, and nobody else is.
  bool Ends(const v1::FromExecutor& message) {
    executor(0).Send(message);
    return EndsNow();
  }
  bool EndsNow() {
    for (int i = 0; i < 200; ++i) Step();
    const auto ended = Ended();
    if (ended.empty()) return false;
    EXPECT_THAT(ended, ElementsAre(std::pair("e1", "EXECUTOR_LOST")));
    EXPECT_THAT(launcher_.killed, ElementsAre(1));
    Exposition metrics;
    supervisor_.Collect(&metrics);
    EXPECT_THAT(metrics.Text(),
                HasSubstr("djinn_worker_executor_deaths_total{tenant=\"evil\"}"
                          " 1"));
    EXPECT_THAT(metrics.Text(), Not(HasSubstr("tenant=\"good\"")));
    EXPECT_EQ(Endpoints().count("good"), 1u);
    const v1::WorkerState state = supervisor_.Snapshot();
    EXPECT_EQ(state.sessions_size(), 1);
    EXPECT_EQ(UncheckedClaims(state.sessions(0).lease()).tenant(), "good");
    return true;
  }
  // Reports, and returns the state of the worker.
  v1::WorkerState StateAfter(v1::WorkerState report) {
    executor(0).Report(std::move(report));
    for (int i = 0; i < 50; ++i) Step();
    EXPECT_THAT(Ended(), IsEmpty());
    return supervisor_.Snapshot();
  }
};

struct Lie {
  const char* name;
  std::function<void(v1::FromExecutor*)> tell;
};

v1::HeldSession* SessionIn(v1::FromExecutor* message) {
  *message->mutable_report() = Holding("evil", "e1", 1, 1);
  return message->mutable_report()->mutable_sessions(0);
}
v1::LeaseRuns* RunsIn(v1::FromExecutor* message) {
  *message->mutable_report() = Holding("evil", "e1", 1, 1);
  return message->mutable_report()->add_runs_answers()->add_leases();
}

class HostileReportTest : public HostileExecutorTest,
                          public testing::WithParamInterface<Lie> {};

TEST_P(HostileReportTest, EndsItsExecutorAlone) {
  v1::FromExecutor message;
  GetParam().tell(&message);
  EXPECT_TRUE(Ends(message));
}

const std::string& Long() {
  static const auto* const kLong = new std::string(513, 'x');
  return *kLong;
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileReportTest,
    testing::Values(
        Lie{"Nothing", [](v1::FromExecutor*) {}},
        Lie{"ReadyTwice", [](v1::FromExecutor* m) { m->mutable_ready(); }},
        Lie{"HugeCountOfRefusedCalls",
            [](v1::FromExecutor* m) {
              m->mutable_health()->set_refused_system_calls(~uint64_t{0});
            }},
        Lie{"WaitOfALongText",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_wait()->set_worker_id(Long());
            }},
        Lie{"WaitForAnotherTenant",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_wait()->set_served_tenant("good");
            }},
        Lie{"WaitOfNoKind",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_wait()->set_what(
                  static_cast<v1::MessageWait::For>(77));
            }},
        Lie{"WaitOfAges",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_wait()->mutable_waited()->set_seconds(
                  std::numeric_limits<int64_t>::max());
            }},
        Lie{"YieldedToAnotherTenant",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_yielded()->set_last_tenant("good");
            }},
        Lie{"UseOfAges",
            [](v1::FromExecutor* m) {
              SessionIn(m)
                  ->mutable_lease_use()
                  ->mutable_device_time()
                  ->set_seconds(std::numeric_limits<int64_t>::max());
            }},
        Lie{"UseBeyondNumbers",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_lease_use()->set_bytes(~uint64_t{0});
            }},
        Lie{"UseOfAPhaseThatIsNone",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_lease_use()->add_phases()->set_phase(
                  static_cast<v1::Phase>(99));
            }},
        Lie{"ManyModels",
            [](v1::FromExecutor* m) {
              v1::HeldSession* const held = SessionIn(m);
              for (int i = 0; i < 65; ++i) held->mutable_use()->add_models();
            }},
        Lie{"LongNameOfAModel",
            [](v1::FromExecutor* m) {
              SessionIn(m)->mutable_use()->add_models()->set_name(Long());
            }},
        Lie{"EndForALongReason",
            [](v1::FromExecutor* m) {
              v1::EndedLease* const ended =
                  m->mutable_report()->add_ended_leases();
              *ended->mutable_lease() = LeaseOf("evil", "e1");
              ended->set_reason(Long());
            }},
        Lie{"LinkToAStranger",
            [](v1::FromExecutor* m) {
              v1::PeerLink* const link = m->mutable_report()->add_links();
              link->set_worker_id("never named");
              link->set_bytes_per_second(1);
            }},
        Lie{"ManyLinks",
            [](v1::FromExecutor* m) {
              for (int i = 0; i < 257; ++i) m->mutable_report()->add_links();
            }},
        Lie{"ManyContents",
            [](v1::FromExecutor* m) {
              for (int i = 0; i < 65537; ++i) {
                m->mutable_report()->add_contents();
              }
            }},
        Lie{"LongFingerprint",
            [](v1::FromExecutor* m) {
              m->mutable_report()->add_graphs()->set_fingerprint(
                  std::string(33, 'x'));
            }},
        Lie{"MemoryBeyondNumbers",
            [](v1::FromExecutor* m) {
              m->mutable_report()->mutable_memory()->set_storage_bytes(
                  ~uint64_t{0});
            }},
        Lie{"HitsBeyondNumbers",
            [](v1::FromExecutor* m) {
              m->mutable_report()->mutable_plan_cache()->set_hits(~uint64_t{0});
            }},
        Lie{"PhaseThatIsNone",
            [](v1::FromExecutor* m) {
              m->mutable_report()->mutable_executed()->add_phases()->set_phase(
                  static_cast<v1::Phase>(99));
            }},
        Lie{"OrdersThatItNeverGot",
            [](v1::FromExecutor* m) {
              m->mutable_report()->set_applied_revision(1000);
            }},
        Lie{"ManyAnswers",
            [](v1::FromExecutor* m) {
              for (int i = 0; i < 65; ++i) {
                m->mutable_report()->add_runs_answers();
              }
            }},
        Lie{"ManyRuns",
            [](v1::FromExecutor* m) {
              v1::LeaseRuns* const runs = RunsIn(m);
              for (int i = 0; i < 65; ++i) runs->add_runs();
            }},
        Lie{"RunThatFailedInALongText",
            [](v1::FromExecutor* m) {
              RunsIn(m)->add_runs()->mutable_failure()->set_message(Long());
            }},
        Lie{"RunWithAnotherTenant",
            [](v1::FromExecutor* m) {
              RunsIn(m)->add_runs()->add_companions()->set_tenant("good");
            }},
        Lie{"RunPreemptedByAnotherTenant",
            [](v1::FromExecutor* m) {
              RunsIn(m)->add_runs()->mutable_preempted_by()->set_tenant("good");
            }},
        Lie{"AnswerThatWaitsForAnotherTenant",
            [](v1::FromExecutor* m) {
              RunsIn(m)->mutable_wait()->set_served_tenant("good");
            }},
        Lie{"UnknownField",
            [](v1::FromExecutor* m) {
              m->mutable_report()
                  ->GetReflection()
                  ->MutableUnknownFields(m->mutable_report())
                  ->AddLengthDelimited(9999, "x");
            }},
        Lie{"MetricOfTheSupervisor",
            [](v1::FromExecutor* m) {
              v1::MetricFamily* const family =
                  m->mutable_metrics()->add_families();
              family->set_name("djinn_worker_executor_deaths_total");
              family->set_type(v1::MetricFamily::COUNTER);
            }},
        Lie{"MetricOfAnotherType",
            [](v1::FromExecutor* m) {
              v1::MetricFamily* const family =
                  m->mutable_metrics()->add_families();
              family->set_name("djinn_worker_runs_total");
              family->set_type(v1::MetricFamily::GAUGE);
            }},
        Lie{"MetricThatBreaksALine",
            [](v1::FromExecutor* m) {
              v1::MetricFamily* const family =
                  m->mutable_metrics()->add_families();
              family->set_name("djinn_worker_x");
              family->set_help("x\nup 0");
            }}),
    [](const testing::TestParamInfo<Lie>& info) { return info.param.name; });

TEST_F(HostileExecutorTest, CountThatDecreasesEndsIt) {
  v1::FromExecutor message;
  message.mutable_health()->set_refused_system_calls(3);
  EXPECT_FALSE(Ends(message));
  message.mutable_health()->set_refused_system_calls(2);
  EXPECT_TRUE(Ends(message));
}

TEST_F(HostileExecutorTest, SizeBeyondTheLimitEndsItBeforeItsBytesArrive) {
  const size_t size = kMaxReportBytes + kMoreBytesPerLease + 1;
  std::string head(4, '\0');
  for (size_t i = 0; i < 4; ++i) {
    head[i] = static_cast<char>(size >> (8 * i) & 0xff);
  }
  executor(0).SendBytes(head);
  EXPECT_TRUE(EndsNow());
}

TEST_F(HostileExecutorTest, BytesThatAreNoMessageEndIt) {
  executor(0).SendBytes(std::string("\3\0\0\0\xff\xff\xff", 7));
  EXPECT_TRUE(EndsNow());
}

TEST_F(HostileExecutorTest, DescriptorsEndItAndAreClosed) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  {
    const Descriptor writing(ends[1]);
    executor(0).SendDescriptor(std::string("\3\0", 2), writing.get());
  }
  EXPECT_TRUE(EndsNow());
  char byte;
  EXPECT_EQ(read(reading.get(), &byte, 1), 0);
}

TEST_F(HostileExecutorTest, TextThatIsNotUnicodeEndsIt) {
  v1::FromExecutor message;
  SessionIn(&message)->mutable_wait()->set_worker_id("w");
  std::string frame = EncodeFrame(message);
  frame[frame.rfind('w')] = '\xff';
  executor(0).SendBytes(frame);
  EXPECT_TRUE(EndsNow());
}

TEST_F(HostileExecutorTest, FloodOfMessagesEndsIt) {
  v1::FromExecutor message;
  message.mutable_health();
  const std::string frame = EncodeFrame(message);
  bool ended = false;
  for (int i = 1; i <= 20 && !ended; ++i) {
    std::string many;
    for (int j = 0; j < 1000; ++j) many += frame;
    executor(0).SendBytes(many);
    ended = EndsNow();
    // The fixture has sent two.
    EXPECT_EQ(ended, i == 20) << i;
  }
}

TEST_F(HostileExecutorTest, AViolationOnAnotherSocketEndsIt) {
  EXPECT_EQ(supervisor_.TenantOf(1), "evil");
  EXPECT_EQ(supervisor_.TenantOf(77), "");
  supervisor_.Refuse(77, absl::InvalidArgumentError("nobody"));
  EXPECT_FALSE(EndsNow());
  supervisor_.Refuse(1, absl::InvalidArgumentError("bytes of another hash"));
  EXPECT_TRUE(EndsNow());
}

TEST(CheckFieldsTest, FactsThatNoDeviceHasAreRefused) {
  v1::ExecutorReady ready;
  ready.set_device("cpu");
  ready.mutable_speed()->set_flops_per_second(1e9);
  EXPECT_TRUE(CheckFields(&ready, "").ok());
  v1::ExecutorReady bad = ready;
  bad.set_device(Long());
  EXPECT_THAT(CheckFields(&bad, "").message(),
              HasSubstr("ExecutorReady.device of 513 bytes"));
  for (const double speed : {-1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    bad = ready;
    bad.mutable_speed()->set_flops_per_second(speed);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckFields(&bad, ""))) << speed;
  }
}

TEST(CheckFieldsTest, SignedNumbersAreLimited) {
  v1::RunsAnswer answer;
  v1::RunRecord* const run = answer.add_leases()->add_runs();
  run->set_size(std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(CheckFields(&answer, "").ok());
  EXPECT_EQ(run->size(), -(int64_t{1} << 55));
}

TEST(CheckNestingTest, EmptyMessagesByTheMillionAreCountedBeforeTheyAreParsed) {
  v1::WorkerState report;
  for (int i = 0; i < 100; ++i) {
    report.add_sessions()->mutable_use()->add_models();
  }
  const auto check = [&](size_t most) {
    return CheckNesting(report.SerializeAsString(), *report.GetDescriptor(),
                        most);
  };
  // The report itself counts.
  EXPECT_TRUE(check(301).ok());
  EXPECT_THAT(check(300).message(), HasSubstr("more than 300 messages"));
  std::string cut = report.SerializeAsString();
  cut.pop_back();
  EXPECT_FALSE(CheckNesting(cut, *report.GetDescriptor(), 1000).ok());
}

TEST(CheckNestingTest, EmptyTextsByTheMillionAreCountedBeforeTheyAreParsed) {
  v1::WorkerState report;
  for (int i = 0; i < 100; ++i) report.add_released_lease_ids("");
  const std::string bytes = report.SerializeAsString();
  EXPECT_TRUE(CheckNesting(bytes, *report.GetDescriptor(), 101).ok());
  EXPECT_FALSE(CheckNesting(bytes, *report.GetDescriptor(), 99).ok());
}

TEST(CheckNestingTest, GroupsAreRefused) {
  // Tags that begin and end a group of number 1000.
  const std::string group("\xc3\x3e\xc4\x3e", 4);
  EXPECT_FALSE(CheckNesting(group, *v1::WorkerState::descriptor(), 1000).ok());
}

TEST_F(HostileExecutorTest, TextsReachOperatorsWithoutControlCharacters) {
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  report.mutable_sessions(0)->mutable_wait()->set_worker_id(
      "\x1b[2J\r\nlevel=error \xc2\x9b");
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.sessions(0).wait().worker_id(), " [2J  level=error  ");
}

TEST_F(HostileExecutorTest, TimesBelowZeroCountAsNone) {
  v1::WorkerState report = Holding("evil", "e1", -5, 1);
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.sessions(0).lease_use().device_time().seconds(), 0);
}

TEST_F(HostileExecutorTest, SizesAndTimesAreLimitedToWhatItHas) {
  clock_.Advance(absl::Seconds(10));
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  report.set_memory_bytes(10 * kMemory);
  report.mutable_memory()->set_content_bytes(10 * kMemory);
  report.mutable_executed()->mutable_device_time()->set_seconds(1000);
  v1::HeldGraph* const graph = report.add_graphs();
  graph->set_fingerprint("graph");
  graph->set_content_bytes(10 * kMemory);
  graph->mutable_device_time()->set_seconds(1000);
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.free_bytes(), kMemory / 2);
  EXPECT_EQ(state.memory().content_bytes(), kMemory / 2);
  EXPECT_EQ(state.executed().device_time().seconds(), 10);
  EXPECT_EQ(state.graphs(0).content_bytes(), kMemory / 2);
  EXPECT_EQ(state.graphs(0).device_time().seconds(), 10);
}

TEST_F(HostileExecutorTest, QueuedRunsDoNotWrapAround) {
  v1::WorkerState report = Holding("good", "g1", 1, 1);
  report.set_queued_runs(5);
  executor(1).Report(report);
  report = Holding("evil", "e1", 1, 1);
  report.set_queued_runs(~uint32_t{0});
  EXPECT_EQ(StateAfter(report).queued_runs(), ~uint32_t{0});
}

TEST_F(HostileExecutorTest, OneExecutorsContentsLeaveRoomForOthers) {
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  for (int i = 0; i < 65536; ++i) {
    report.add_contents()->set_tenant("good");
  }
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.contents_size(), 32768);
  EXPECT_EQ(state.contents(0).tenant(), "evil");
}

TEST_F(HostileExecutorTest, AnswersAreToOpenQuestionsOfItsTenantAlone) {
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  const auto ask = [&](uint64_t id, const std::string& session) {
    v1::RunsQuestion* const question = desired.add_runs_questions();
    question->set_question_id(id);
    question->set_session_id(session);
  };
  ask(1, "session-of-e1");
  ask(2, "session-of-g1");
  supervisor_.Apply(desired);
  Step();
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  for (const uint64_t id : {1, 1, 2, 3}) {
    v1::RunsAnswer* const answer = report.add_runs_answers();
    answer->set_question_id(id);
    for (const char* const lease : {"e1", "g1", "x1"}) {
      answer->add_leases()->set_lease_id(lease);
    }
  }
  const v1::WorkerState state = StateAfter(report);
  ASSERT_EQ(state.runs_answers_size(), 1);
  EXPECT_EQ(state.runs_answers(0).question_id(), 1u);
  ASSERT_EQ(state.runs_answers(0).leases_size(), 1);
  EXPECT_EQ(state.runs_answers(0).leases(0).lease_id(), "e1");
}

TEST_F(HostileExecutorTest, LeasesOfOthersStayTheirs) {
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  *report.add_sessions()->mutable_lease() = LeaseOf("good", "g1");
  *report.add_ended_leases()->mutable_lease() = LeaseOf("good", "g1");
  report.add_released_lease_ids("g1");
  report.add_forgotten_lease_ids("g1");
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.sessions_size(), 2);
  EXPECT_EQ(state.ended_leases_size(), 0);
}

TEST_F(HostileExecutorTest, ReportOfTheStreamBeforeTakesNoNewLeaseAway) {
  revision_ = 0;
  Lease("evil", "e2");
  // Sent before the executor heard of the new stream.
  v1::WorkerState late;
  late.set_applied_revision(5);
  executor(0).Report(late);
  executor(0).Report(Holding("evil", "e2", 1, 1));
  Step();
  EXPECT_THAT(Ended(), IsEmpty());
  for (;;) {
    const v1::DesiredState orders = executor(0).Orders();
    if (orders.revision() == 0) break;
    EXPECT_THAT(orders.drop_lease_ids(), IsEmpty());
  }
  EXPECT_EQ(supervisor_.Snapshot().sessions_size(), 2);
}

TEST_F(HostileExecutorTest, CompleteReportOfTheStreamBeforeEndsNothing) {
  revision_ = 0;
  Lease("evil", "e2");
  // The executor sent this on the stream before, at that stream's revision 2.
  const v1::WorkerState state = StateAfter(Holding("evil", "e1", 1, 2));
  EXPECT_EQ(state.sessions_size(), 2);
  // The first complete report of the new stream counts, and ends the lenience.
  EXPECT_EQ(StateAfter(Holding("evil", "e2", 1, 1)).sessions_size(), 2);
  executor(0).Report(Holding("evil", "e2", 1, 1000));
  for (int i = 0; i < 50; ++i) Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("e2", "EXECUTOR_LOST")));
}

TEST_F(HostileExecutorTest, ItsSpansAreSampledAndLimited) {
  SpanExporterOptions exporting;
  exporting.sample_ratio = 0.5;
  SpanExporter exporter(exporting, std::make_unique<GladCollector>(), &clock_);
  SupervisorOptions options = Options();
  options.spans = &exporter;
  FakeLauncher launcher;
  Arbiter arbiter(Clock::Real());
  Supervisor supervisor(options, &launcher, &arbiter, &clock_, [] {});
  const auto step = [&] {
    for (int i = 0; i < 50; ++i) {
      for (const auto& executor : launcher.executors) executor->Flush();
      supervisor.Step(absl::ZeroDuration());
    }
  };
  step();
  FakeExecutor& evil = *launcher.executors[0];
  const TraceContext unsampled{1, ~uint64_t{0}, 1};
  const TraceContext sampled{1, 0, 1};
  ASSERT_FALSE(exporter.Takes(unsampled));
  evil.Send(SpansOf(unsampled, 5));
  step();
  EXPECT_EQ(exporter.counts().dropped, 5u);
  for (int i = 0; i < 3; ++i) evil.Send(SpansOf(sampled, 512));
  step();
  EXPECT_EQ(exporter.counts().dropped, 5u + 512u);
  // A second later, there is room again.
  clock_.Advance(absl::Seconds(1));
  step();
  evil.Send(SpansOf(sampled, 512));
  step();
  EXPECT_EQ(exporter.counts().dropped, 5u + 512u);
  v1::FromExecutor claim;
  claim.mutable_spans()->set_dropped(uint64_t{1} << 50);
  evil.Send(claim);
  step();
  EXPECT_EQ(exporter.counts().dropped, 5u + 512u + 1'000'000u);
  exporter.Stop();
  EXPECT_EQ(exporter.counts().exported, 3 * 512u);
  supervisor.Stop();
}

}  // namespace
}  // namespace djinn::worker
