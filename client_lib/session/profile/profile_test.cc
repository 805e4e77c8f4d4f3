// Tests clock relations, latency components, and the texts of a profile.
#include <algorithm>
#include <numeric>
#include <string>

#include "client_lib/session/profile/profile_recorder.h"
#include "client_lib/session/profile/request_stages.h"
#include "common/base/error.h"
#include "djinn/v1/execution.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::HasSubstr;

constexpr absl::Duration Us(int64_t us) { return absl::Microseconds(us); }

TEST(ClockRelationTest, TheShortestRoundTripSaysMost) {
  ClockRelation clocks;
  EXPECT_FALSE(clocks.known());
  // The other clock is 1000 us ahead. The message takes 40 us to the worker,
  // and the answer takes 2 us.
  clocks.Add(Us(0), Us(1040), Us(1050), Us(52));
  EXPECT_EQ(clocks.uncertainty(), Us(21));
  // The message takes 3 us each way.
  clocks.Add(Us(100), Us(1103), Us(1113), Us(116));
  EXPECT_EQ(clocks.ToOurs(Us(1103)), Us(103));
  EXPECT_EQ(clocks.uncertainty(), Us(3));
  clocks.Add(Us(200), Us(1290), Us(1300), Us(302));
  EXPECT_EQ(clocks.ToOurs(Us(1103)), Us(103));
}

TEST(ClockRelationTest, ForgetsAClockThatHasDrifted) {
  ClockRelation clocks;
  clocks.Add(Us(0), Us(1001), Us(1001), Us(2));
  for (int i = 1; i <= ClockRelation::kWindow; ++i) {
    // The other clock is now 2000 us ahead, and round trips take longer.
    const absl::Duration at = Us(100 * i);
    clocks.Add(at, at + Us(2005), at + Us(2005), at + Us(10));
  }
  EXPECT_EQ(clocks.ToOurs(Us(3000)), Us(1000));
}

v1::ReplyTiming Timing(uint64_t received_us, uint64_t sent_us) {
  v1::ReplyTiming timing;
  timing.set_received(received_us * 1000);
  timing.set_sent(sent_us * 1000);
  timing.set_decode(1000);
  timing.set_admission(2000);
  timing.set_bind(3000);
  timing.set_execute(40000);
  timing.set_reply(5000);
  return timing;
}

// Returns the marks of a read. It was requested at 100, its encoding ended at
// 110 (7 of these 10 units were encoding), and it travelled for 4, stayed for
// 60, travelled back for 6, and was handed over in 9. The worker's clock is
// 5000 ahead.
ReadMarks Marks() {
  ReadMarks marks;
  marks.began = Us(0);
  marks.asked = Us(100);
  marks.encoding_before = Us(500);
  marks.handed = Us(110);
  marks.encoding_after = Us(507);
  marks.timing = TimesOf(Timing(5114, 5174)).value();
  marks.arrived = Us(180);
  return marks;
}

ClockRelation Clocks() {
  ClockRelation clocks;
  clocks.Add(Us(0), Us(5001), Us(5001), Us(2));
  return clocks;
}

absl::Duration Sum(const std::array<absl::Duration, kStageCount>& stages) {
  return std::accumulate(stages.begin(), stages.end(), absl::Duration());
}

using Stages = std::array<absl::Duration, kStageCount>;

TEST(RequestStagesTest, CutsTheWallTimeIntoTwelve) {
  const Stages stages = StagesOf(Marks(), Clocks(), Us(189));
  EXPECT_EQ(stages, (Stages{Us(100), Us(7), Us(3), Us(4), Us(1), Us(2), Us(9),
                            Us(3), Us(40), Us(5), Us(6), Us(9)}));
  EXPECT_EQ(Sum(stages), Us(189));
}

TEST(RequestStagesTest, WithoutARelationOfTheClocksBothWaysTookTheSame) {
  const Stages stages = StagesOf(Marks(), ClockRelation(), Us(189));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kTransit)], Us(5));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kTransitBack)], Us(5));
  EXPECT_EQ(Sum(stages), Us(189));
}

TEST(RequestStagesTest, AClockThatIsOffTurnsNoStageNegative) {
  ClockRelation clocks;
  clocks.Add(Us(0), Us(5200), Us(5200), Us(0));
  const Stages stages = StagesOf(Marks(), clocks, Us(189));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kTransit)], Us(0));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kTransitBack)], Us(10));
  EXPECT_EQ(Sum(stages), Us(189));
}

TEST(RequestStagesTest, AWorkerCannotHaveTakenLongerThanTheAnswer) {
  ReadMarks marks = Marks();
  marks.arrived = Us(140);
  const Stages stages = StagesOf(marks, Clocks(), Us(149));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kExecute)], Us(20));
  EXPECT_EQ(Sum(stages), Us(149));
}

TEST(RequestStagesTest, TimeBeforeTheRequestIsCapture) {
  // The value was prefetched: the program asked for it after the worker had
  // been executing for a while.
  ReadMarks marks = Marks();
  marks.asked = Us(140);
  Stages stages = StagesOf(marks, Clocks(), Us(189));
  EXPECT_EQ(stages, (Stages{Us(140), Us(0), Us(0), Us(0), Us(0), Us(0), Us(0),
                            Us(0), Us(29), Us(5), Us(6), Us(9)}));
  // The program asked after the answer had arrived.
  marks.asked = Us(185);
  stages = StagesOf(marks, Clocks(), Us(189));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kCapture)], Us(185));
  EXPECT_EQ(stages[static_cast<size_t>(Stage::kHandOver)], Us(4));
  EXPECT_EQ(Sum(stages), Us(189));
}

TEST(RequestStagesTest, ATimingThatCannotBeIsRefused) {
  EXPECT_TRUE(TimesOf(Timing(10, 61)).ok());
  EXPECT_FALSE(TimesOf(Timing(10, 60)).ok());
  EXPECT_FALSE(TimesOf(Timing(61, 10)).ok());
  v1::ReplyTiming huge = Timing(10, 100);
  huge.set_decode(UINT64_MAX);
  EXPECT_FALSE(TimesOf(huge).ok());
  huge = Timing(10, 100);
  huge.set_sent(UINT64_MAX);
  EXPECT_FALSE(TimesOf(huge).ok());
}

v1::ProfileReport Report() {
  v1::ProfileReport report;
  report.add_operators("aten::mm");
  report.add_operators("aten::add");
  v1::RunTimes* const run = report.add_runs();
  run->set_sequence(7);
  run->set_looked_up(5'001'000);
  run->set_bound(5'002'000);
  run->set_started(5'003'000);
  run->set_ended(5'023'000);
  run->set_mode(v1::EXECUTION_MODE_FAST);
  v1::NodeTimes* const nodes = run->mutable_nodes();
  const auto add = [nodes](uint32_t op, uint64_t began, uint64_t took,
                           v1::ExecutionPath way) {
    nodes->add_operators(op);
    nodes->add_began(began);
    nodes->add_took(took);
    nodes->add_ways(way);
  };
  add(1, 0, 2000, v1::EXECUTION_PATH_PLAIN);
  add(0, 2000, 8000, v1::EXECUTION_PATH_PACKED);
  add(0, 10000, 10000, v1::EXECUTION_PATH_PACKED);
  return report;
}

class ProfileRecorderTest : public testing::Test {
 protected:
  ~ProfileRecorderTest() override { recorder_.Stop(); }
  ProfileRecorder recorder_{ProfileRecorder::Limits{2, 2, 4}};
};

TEST_F(ProfileRecorderTest, AddsOperatorsUpLargestFirst) {
  ASSERT_TRUE(recorder_.Begin().ok());
  recorder_.AddReport(0, "w0", Report(), Clocks(), Us(100));
  const Profile profile = recorder_.End();
  ASSERT_EQ(profile.operators.size(), 2u);
  EXPECT_EQ(profile.operators[0].name, "aten::mm");
  EXPECT_TRUE(profile.operators[0].fast);
  EXPECT_EQ(profile.operators[0].way, ExecutionPath::kPacked);
  EXPECT_EQ(profile.operators[0].calls, 2u);
  EXPECT_EQ(profile.operators[0].total, Us(18));
  EXPECT_EQ(profile.statistics.execution, Us(20));
  ASSERT_EQ(profile.runs.size(), 1u);
  EXPECT_EQ(profile.runs[0].looked_up, Us(1));
  EXPECT_EQ(profile.runs[0].nodes[1].operator_index, 0u);
  EXPECT_EQ(profile.runs[0].nodes[1].began, Us(5));
  const std::string table = profile.OperatorTable();
  EXPECT_THAT(table, HasSubstr("aten::mm"));
  EXPECT_THAT(table, HasSubstr("fast   packed        2        18.0 us       "
                               "9.0 us  90.0%"));
}

TEST_F(ProfileRecorderTest, CountsWhatThereIsNoRoomFor) {
  ASSERT_TRUE(recorder_.Begin().ok());
  for (int i = 0; i < 3; ++i) {
    recorder_.AddRequest({});
    recorder_.AddReport(0, "w0", Report(), Clocks(), Us(100));
  }
  const Profile profile = recorder_.End();
  EXPECT_EQ(profile.requests.size(), 2u);
  EXPECT_EQ(profile.dropped_requests, 1u);
  EXPECT_EQ(profile.runs.size(), 2u);
  EXPECT_EQ(profile.dropped_runs, 1u);
  EXPECT_EQ(profile.dropped_nodes, 5u);
  // The table counts all calls.
  EXPECT_EQ(profile.operators[0].calls, 6u);
  EXPECT_THAT(profile.OperatorTable(),
              HasSubstr("no room for 5 nodes and 1 runs"));
  EXPECT_THAT(profile.StageTable(), HasSubstr("no room for 1 requests"));
}

TEST_F(ProfileRecorderTest, SaysWhatWasNotMeasured) {
  ASSERT_TRUE(recorder_.Begin().ok());
  v1::ProfileReport report = Report();
  report.set_nodes_untimed("it cannot");
  recorder_.AddReport(1, "w7", report, ClockRelation(), Us(1000));
  const Profile profile = recorder_.End();
  ASSERT_EQ(profile.remarks.size(), 2u);
  EXPECT_EQ(profile.remarks[0],
            "no node of device 1 was timed: worker w7: it cannot");
  EXPECT_THAT(profile.remarks[1], HasSubstr("nothing was read from device 1"));
  EXPECT_EQ(profile.runs[0].ended, Us(1000));
  EXPECT_THAT(profile.OperatorTable(), HasSubstr("it cannot"));
}

TEST_F(ProfileRecorderTest, OnlyOneRuns) {
  ASSERT_TRUE(recorder_.Begin().ok());
  EXPECT_EQ(ErrorReason(recorder_.Begin()), "PROFILE_RUNNING");
  (void)recorder_.End();
  EXPECT_TRUE(recorder_.Begin().ok());
}

TEST_F(ProfileRecorderTest, ARequestOfAnEarlierProfileIsForgotten) {
  FakeClock clock;
  ASSERT_TRUE(recorder_.Begin(&clock).ok());
  recorder_.BeginRequest();
  (void)recorder_.End();
  clock.Advance(Us(50));
  ASSERT_TRUE(recorder_.Begin(&clock).ok());
  EXPECT_EQ(recorder_.TakeBeginning(Us(50)), Us(50));
  clock.Advance(Us(10));
  recorder_.BeginRequest();
  clock.Advance(Us(10));
  recorder_.BeginRequest();
  EXPECT_EQ(recorder_.TakeBeginning(Us(80)), Us(60));
  EXPECT_EQ(recorder_.TakeBeginning(Us(80)), Us(80));
}

TEST_F(ProfileRecorderTest, TracesThreadsAndWorkersOnOneTimeLine) {
  ASSERT_TRUE(recorder_.Begin().ok());
  RequestProfile request;
  request.thread = 42;
  request.began = Us(0);
  request.stages[0] = Us(3);
  request.stages[8] = Us(4);
  request.ended = Us(7);
  recorder_.AddRequest(request);
  recorder_.AddReport(0, "w\"0", Report(), Clocks(), Us(100));
  const std::string trace = recorder_.End().ChromeTrace();
  EXPECT_THAT(trace, HasSubstr(R"("name":"worker w\"0, device 0")"));
  EXPECT_THAT(trace, HasSubstr(R"("name":"request")"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":42,"ts":3.0,"dur":4.0)"));
  EXPECT_THAT(
      trace,
      HasSubstr(
          R"x("name":"aten::mm (packed)","pid":4294967296,"tid":0,"ts":5.0,)x"
          R"("dur":8.0)"));
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '{'),
            std::count(trace.begin(), trace.end(), '}'));
}

TEST(ProfileReportTest, MalformedReportIsRefused) {
  EXPECT_TRUE(ProfileRecorder::Check(Report()).ok());
  v1::ProfileReport report = Report();
  report.mutable_runs(0)->mutable_nodes()->set_operators(0, 2);
  EXPECT_FALSE(ProfileRecorder::Check(report).ok());
  report = Report();
  report.mutable_runs(0)->mutable_nodes()->add_took(1);
  EXPECT_FALSE(ProfileRecorder::Check(report).ok());
  report = Report();
  report.mutable_runs(0)->mutable_nodes()->set_took(2, 10001);
  EXPECT_FALSE(ProfileRecorder::Check(report).ok());
  report = Report();
  report.mutable_runs(0)->set_bound(0);
  EXPECT_FALSE(ProfileRecorder::Check(report).ok());
  report = Report();
  report.mutable_runs(0)->set_ended(UINT64_MAX);
  EXPECT_FALSE(ProfileRecorder::Check(report).ok());
}

}  // namespace
}  // namespace djinn
