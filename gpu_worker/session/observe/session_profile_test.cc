#include "gpu_worker/session/observe/session_profile.h"

#include "common/srg/validate.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration Us(int64_t us) { return absl::Microseconds(us); }

class SessionProfileTest : public testing::Test {
 protected:
  // Makes the plan of x += y, `nodes` times.
  Plan MakePlan(const std::string& fingerprint, int nodes) {
    FakeGraph s;
    const uint32_t x = s.Bound();
    const uint32_t y = s.Bound();
    for (int i = 0; i < nodes; ++i) s.AddInPlace(x, y, 2);
    const srg::GraphFacts facts = *srg::Validate(s.get(), srg::GraphCaps());
    return Plan(fingerprint, s.get(), facts,
                *device_.operators()->Compile(s.get()), 100);
  }
  NodeTime Node(uint32_t node, int64_t began, int64_t ended) {
    return {node, Us(began), Us(ended), ExecutionPath::kPlain, false};
  }

  FakeDevice device_{1 << 20};
  FakeClock clock_;
};

TEST_F(SessionProfileTest, SaysWhatAReadMet) {
  SessionProfile profile(&clock_, "");
  profile.Enter(SessionProfile::kExecute);
  clock_.Advance(Us(100));
  const SessionProfile::Mark mark = profile.Note();
  clock_.Advance(Us(7));
  profile.Enter(SessionProfile::kBind);
  clock_.Advance(Us(3));
  profile.Leave();
  clock_.Advance(Us(5));
  profile.Enter(SessionProfile::kAdmission);
  clock_.Advance(Us(2));
  profile.Enter(SessionProfile::kReply);
  clock_.Advance(Us(4));
  const v1::ReplyTiming timing = profile.TimingOf(mark);
  EXPECT_EQ(timing.sent() - timing.received(), 21000u);
  EXPECT_EQ(timing.execute(), 7000u);
  EXPECT_EQ(timing.bind(), 3000u);
  EXPECT_EQ(timing.admission(), 2000u);
  EXPECT_EQ(timing.reply(), 4000u);
  EXPECT_EQ(timing.decode(), 0u);
}

TEST_F(SessionProfileTest, DecodingIsNoneOfWhatTheExecutorDidMeanwhile) {
  SessionProfile profile(&clock_, "");
  SessionProfile::Mark mark = profile.Note();
  mark.decoded = mark.received + Us(10);
  profile.Enter(SessionProfile::kExecute);
  clock_.Advance(Us(8));
  profile.Enter(SessionProfile::kReply);
  clock_.Advance(Us(6));
  // All 14 us since the message arrived went to the executor's stages, so no
  // time is left to count as decoding.
  EXPECT_EQ(profile.TimingOf(mark).decode(), 0u);
  profile.Leave();
  clock_.Advance(Us(4));
  EXPECT_EQ(profile.TimingOf(mark).decode(), 4000u);
}

TEST_F(SessionProfileTest, NamesEachOperatorOnce) {
  SessionProfile profile(&clock_, "");
  const Plan a = MakePlan("a", 2);
  const Plan b = MakePlan("b", 1);
  NodeTimer timer = profile.NewTimer();
  timer.Add(Node(0, 10, 12));
  NodeTime packed = Node(1, 12, 17);
  packed.way = ExecutionPath::kPacked;
  timer.Add(packed);
  profile.AddRun(5, a, v1::EXECUTION_MODE_FAST, {Us(7), Us(8), Us(10), Us(20)},
                 timer);
  NodeTimer other = profile.NewTimer();
  NodeTime failed = Node(0, 30, 31);
  failed.failed = true;
  other.Add(failed);
  profile.AddRun(6, b, v1::EXECUTION_MODE_STRICT,
                 {Us(28), Us(29), Us(30), Us(32)}, other);
  const v1::ProfileReport report = profile.TakeReport(9);
  EXPECT_EQ(report.sequence(), 9u);
  ASSERT_EQ(report.operators_size(), 1);
  EXPECT_EQ(report.operators(0), "fake::add_");
  ASSERT_EQ(report.runs_size(), 2);
  const v1::RunTimes& run = report.runs(0);
  EXPECT_EQ(run.sequence(), 5u);
  EXPECT_EQ(run.mode(), v1::EXECUTION_MODE_FAST);
  EXPECT_EQ(run.looked_up(), 7000u);
  EXPECT_EQ(run.ended(), 20000u);
  EXPECT_EQ(run.nodes().began(1), 2000u);
  EXPECT_EQ(run.nodes().took(1), 5000u);
  EXPECT_EQ(run.nodes().ways(0), v1::EXECUTION_PATH_PLAIN);
  EXPECT_EQ(run.nodes().ways(1), v1::EXECUTION_PATH_PACKED);
  EXPECT_EQ(report.runs(1).nodes().ways(0), v1::EXECUTION_PATH_FAILED);
  EXPECT_EQ(profile.TakeReport(10).runs_size(), 0);
}

TEST_F(SessionProfileTest, CountsWhatThereIsNoRoomFor) {
  SessionProfile profile(&clock_, "");
  const Plan plan = MakePlan("a", 40);
  for (size_t i = 0; i < SessionProfile::kMaxRuns + 1; ++i) {
    NodeTimer timer = profile.NewTimer();
    for (uint32_t node = 0; node < 40; ++node) timer.Add(Node(node, 0, 1));
    profile.AddRun(i, plan, v1::EXECUTION_MODE_STRICT, {}, timer);
  }
  const v1::ProfileReport report = profile.TakeReport(1);
  EXPECT_EQ(report.runs_size(), static_cast<int>(SessionProfile::kMaxRuns));
  EXPECT_EQ(report.dropped_runs(), 1u);
  size_t kept = 0;
  for (const v1::RunTimes& run : report.runs()) kept += run.nodes().took_size();
  EXPECT_EQ(kept, SessionProfile::kMaxNodes);
  EXPECT_EQ(kept + report.dropped_nodes(), (SessionProfile::kMaxRuns + 1) * 40);
  // The next report has room again.
  EXPECT_EQ(profile.TakeReport(2).dropped_runs(), 0u);
}

TEST_F(SessionProfileTest, SaysWhyThereAreNoNodes) {
  SessionProfile profile(&clock_, "it cannot");
  const Plan plan = MakePlan("a", 1);
  NodeTimer timer = profile.NewTimer();
  timer.Add(Node(0, 0, 1));
  profile.AddRun(1, plan, v1::EXECUTION_MODE_STRICT, {}, timer);
  const v1::ProfileReport report = profile.TakeReport(1);
  EXPECT_EQ(report.nodes_untimed(), "it cannot");
  EXPECT_EQ(report.runs_size(), 1);
  EXPECT_EQ(report.runs(0).nodes().took_size(), 0);
  EXPECT_EQ(report.dropped_nodes(), 0u);
}

}  // namespace
}  // namespace djinn::worker
