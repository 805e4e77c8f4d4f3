#include "gpu_worker/session/observe/run_records.h"

#include <deque>
#include <string>
#include <vector>

#include "common/base/proto_duration.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/profile.pb.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Runs = google::protobuf::RepeatedPtrField<v1::RunRecord>;

absl::Duration At(int64_t seconds) { return absl::Seconds(seconds); }

// Returns the times of a session that has waited only for its turn.
RunGates::Times Waited(int64_t seconds) {
  RunGates::Times times = {};
  times[v1::RUN_GATE_OTHER_TENANTS] = seconds * 1'000'000'000;
  return times;
}

class RunRecordsTest : public testing::Test {
 protected:
  // Records a run received at `at`, when the session had waited as long.
  RunRecords::Waiting Receive(int64_t at, uint64_t graph = 1) {
    v1::Ordered& message = messages_.emplace_back();
    message.set_sequence(messages_.size());
    message.set_lane(3);
    message.mutable_run()->set_graph_id(graph);
    message.mutable_run()->set_mode(v1::EXECUTION_MODE_FAST);
    records_.Receive(Waited(at));
    return {&message, At(at)};
  }
  void Begin(const RunRecords::Waiting& run, int64_t at) {
    records_.Begin(run, v1::PHASE_TRAINING, Waited(at), At(at));
  }
  void Finish(int64_t at, RunRecords::End end = {}) {
    records_.Finish(end, At(at));
  }
  Runs Describe(int64_t now, std::vector<RunRecords::Waiting> waiting = {},
                uint64_t completed = 0) {
    RunRecords::Moment moment;
    moment.now = At(now);
    moment.waited = Waited(now);
    moment.gate = v1::RUN_GATE_OTHER_TENANTS;
    moment.since = At(now - 2);
    moment.completed = completed;
    Runs runs;
    records_.Describe(waiting, moment, &runs);
    return runs;
  }
  static int64_t Seconds(const google::protobuf::Duration& duration) {
    EXPECT_EQ(duration.nanos(), 0);
    return duration.seconds();
  }

  std::deque<v1::Ordered> messages_;
  RunRecords records_;
};

TEST_F(RunRecordsTest, NothingIsKnownBeforeTheFirst) {
  EXPECT_TRUE(Describe(5).empty());
}

TEST_F(RunRecordsTest, ALifeIsToldInParts) {
  records_.Define(1, std::string(32, '\x0f'));
  RunRecords::Waiting run = Receive(10);
  run.deadline = At(30);
  Begin(run, 14);
  Finish(
      20,
      {.phase = v1::PHASE_LLM_DECODE, .device_time = At(5), .planned = At(1)});
  const Runs runs = Describe(100);
  ASSERT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].number(), 1u);
  EXPECT_EQ(runs[0].lane(), 3u);
  EXPECT_TRUE(runs[0].fast());
  EXPECT_EQ(runs[0].state(), v1::RunRecord::COMPLETED);
  EXPECT_EQ(runs[0].phase(), v1::PHASE_LLM_DECODE);
  std::string hex;
  for (int i = 0; i < 32; ++i) hex += "0f";
  EXPECT_EQ(runs[0].fingerprint(), hex);
  EXPECT_EQ(Seconds(runs[0].age()), 90);
  EXPECT_EQ(Seconds(runs[0].waited()), 4);
  ASSERT_EQ(runs[0].waits_size(), 1);
  EXPECT_EQ(runs[0].waits(0).gate(), v1::RUN_GATE_OTHER_TENANTS);
  EXPECT_EQ(Seconds(runs[0].waits(0).time()), 4);
  EXPECT_EQ(Seconds(runs[0].served()), 6);
  EXPECT_EQ(Seconds(runs[0].planned()), 1);
  EXPECT_EQ(Seconds(runs[0].device_time()), 5);
  EXPECT_EQ(Seconds(runs[0].deadline()), 20);
  EXPECT_FALSE(runs[0].has_failure());
}

TEST_F(RunRecordsTest, OneInServiceGoesOn) {
  Begin(Receive(0), 3);
  const Runs runs = Describe(10);
  ASSERT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].state(), v1::RunRecord::IN_SERVICE);
  EXPECT_EQ(Seconds(runs[0].waited()), 3);
  EXPECT_EQ(Seconds(runs[0].served()), 7);
  EXPECT_TRUE(runs[0].fingerprint().empty());
}

TEST_F(RunRecordsTest, ThoseThatWaitSayWhatForAndBehindHowMuch) {
  const RunRecords::Waiting first = Receive(0);
  Begin(first, 1);
  const RunRecords::Waiting second = Receive(4);
  const RunRecords::Waiting third = Receive(9);
  const Runs runs = Describe(10, {second, third});
  ASSERT_EQ(runs.size(), 3);
  EXPECT_EQ(runs[1].state(), v1::RunRecord::WAITING);
  EXPECT_FALSE(runs[1].has_served());
  EXPECT_EQ(Seconds(runs[1].waited()), 6);
  EXPECT_EQ(runs[1].gate(), v1::RUN_GATE_OTHER_TENANTS);
  EXPECT_EQ(Seconds(runs[1].gate_time()), 2);
  EXPECT_EQ(runs[1].messages_ahead(), 1u);
  // The run arrived after the gate had closed.
  EXPECT_EQ(Seconds(runs[2].gate_time()), 1);
  EXPECT_EQ(runs[2].messages_ahead(), 2u);
}

TEST_F(RunRecordsTest, PutBackRunWaitsOn) {
  const RunRecords::Waiting run = Receive(0);
  Begin(run, 1);
  records_.PutBack();
  EXPECT_EQ(Describe(2, {run})[0].state(), v1::RunRecord::WAITING);
  Begin(run, 5);
  Finish(6);
  const Runs runs = Describe(7);
  ASSERT_EQ(runs.size(), 1);
  EXPECT_EQ(Seconds(runs[0].waited()), 5);
  EXPECT_EQ(Seconds(runs[0].served()), 1);
}

TEST_F(RunRecordsTest, TheLastOnesAreKept) {
  const int64_t many = 3 * RunRecords::kOver + 5;
  for (int64_t i = 0; i < many; ++i) {
    Begin(Receive(i), i);
    Finish(i + 1);
  }
  const Runs runs = Describe(many);
  ASSERT_EQ(runs.size(), static_cast<int>(RunRecords::kOver));
  for (int i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].number(), static_cast<uint64_t>(many - 15 + i));
  }
}

TEST_F(RunRecordsTest, TheFirstThatWaitAreTold) {
  std::vector<RunRecords::Waiting> waiting;
  for (int64_t i = 0; i < 200; ++i) waiting.push_back(Receive(i));
  const Runs runs = Describe(300, waiting);
  ASSERT_EQ(runs.size(), static_cast<int>(RunRecords::kWaiting));
  EXPECT_EQ(runs[0].number(), 1u);
  EXPECT_EQ(Seconds(runs[15].waited()), 285);
  // Each of them begins with its own waiting time, however many there were.
  for (int64_t i = 0; i < 200; ++i) {
    Begin(waiting[static_cast<size_t>(i)], 300 + i);
    Finish(300 + i);
  }
  for (const v1::RunRecord& run : Describe(600)) {
    EXPECT_EQ(Seconds(run.waited()), 300);
  }
  // So do later runs, when the memory for so many is gone.
  Begin(Receive(700), 703);
  Finish(704);
  EXPECT_EQ(Seconds(Describe(705)[15].waited()), 3);
}

TEST_F(RunRecordsTest, PreemptionsOfARunAreSummedUp) {
  Begin(Receive(0), 0);
  records_.Yield({"blue", "b1"}, "higher_priority", At(2));
  records_.Yield({"blue", "b2"}, "deadline", At(1));
  records_.Yield({"blue", "b1"}, "higher_priority", At(3));
  Finish(10);
  // No run is in service.
  records_.Yield({"blue", "b1"}, "higher_priority", At(3));
  const v1::RunRecord run = Describe(10)[0];
  EXPECT_EQ(run.yield_count(), 3u);
  EXPECT_EQ(Seconds(run.yielded_for()), 6);
  ASSERT_EQ(run.preemptions_size(), 2);
  EXPECT_EQ(run.preemptions(0).session_id(), "b2");
  EXPECT_EQ(run.preemptions(0).reason(), "deadline");
  EXPECT_EQ(run.preemptions(1).session_id(), "b1");
  EXPECT_EQ(run.preemptions(1).tenant(), "blue");
  EXPECT_EQ(run.preemptions(1).count(), 2u);
  EXPECT_EQ(Seconds(run.preemptions(1).time()), 5);
}

TEST_F(RunRecordsTest, TheLastWhoWentFirstAreNamed) {
  Begin(Receive(0), 0);
  for (size_t i = 0; i < RunRecords::kPreemptions + 2; ++i) {
    records_.Yield({"blue", std::to_string(i)}, "phase", At(1));
  }
  const v1::RunRecord run = Describe(10)[0];
  EXPECT_EQ(run.yield_count(), RunRecords::kPreemptions + 2);
  EXPECT_EQ(run.preemptions_size(), static_cast<int>(RunRecords::kPreemptions));
  EXPECT_EQ(run.preemptions(0).session_id(), "2");
}

TEST_F(RunRecordsTest, CompanionsAreNamedOfThisRunAlone) {
  const auto peer = std::make_shared<const RunPeer>(RunPeer{"blue", "b1"});
  Begin(Receive(0), 0);
  records_.Share(4, {peer});
  Finish(1);
  Begin(Receive(1), 1);
  Finish(2);
  const Runs runs = Describe(3);
  EXPECT_EQ(runs[0].shared_products(), 4u);
  ASSERT_EQ(runs[0].companions_size(), 1);
  EXPECT_EQ(runs[0].companions(0).tenant(), "blue");
  EXPECT_EQ(runs[0].companions(0).session_id(), "b1");
  EXPECT_EQ(runs[1].shared_products(), 0u);
  EXPECT_EQ(runs[1].companions_size(), 0);
}

TEST_F(RunRecordsTest, AFailureIsOfItsRunAlone) {
  v1::ErrorDetail detail;
  detail.set_reason("OPERATOR_FAILED");
  detail.set_message("no such index");
  detail.set_operator_name("aten::index");
  detail.set_node(7);
  // Repeats it until all records are reused.
  for (size_t i = 0; i < 2 * RunRecords::kOver; ++i) {
    Begin(Receive(0), 0);
    const bool fails = i % 2 == 0;
    Finish(1,
           {.state = fails ? v1::RunRecord::FAILED : v1::RunRecord::COMPLETED,
            .failure = fails ? &detail : nullptr});
  }
  const Runs runs = Describe(3);
  EXPECT_EQ(runs[0].state(), v1::RunRecord::FAILED);
  EXPECT_EQ(runs[0].failure().reason(), "OPERATOR_FAILED");
  EXPECT_EQ(runs[0].failure().message(), "no such index");
  EXPECT_EQ(runs[0].failure().operator_name(), "aten::index");
  EXPECT_EQ(runs[0].failure().node(), 7u);
  EXPECT_FALSE(runs[1].has_failure());
}

TEST_F(RunRecordsTest, LongTextsAreCutBetweenCharacters) {
  v1::ErrorDetail detail;
  detail.set_reason("OPERATOR_FAILED");
  std::string text(499, 'x');
  for (int i = 0; i < 100; ++i) text += "\u00fc";
  detail.set_message(text);
  Begin(Receive(0), 0);
  Finish(1, {.state = v1::RunRecord::FAILED, .failure = &detail});
  EXPECT_EQ(Describe(2)[0].failure().message(), std::string(499, 'x'));
}

TEST_F(RunRecordsTest, AbandonedRunIsCancelled) {
  const RunRecords::Waiting first = Receive(0);
  Begin(first, 1);
  const RunRecords::Waiting second = Receive(2);
  const RunRecords::Waiting third = Receive(3);
  const std::vector<RunRecords::Waiting> waiting = {second, third};
  records_.Abandon(waiting, Waited(5), At(5));
  // The run in service ends in its middle.
  Finish(6, {.state = v1::RunRecord::CANCELLED});
  const Runs runs = Describe(10);
  ASSERT_EQ(runs.size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(runs[i].number(), static_cast<uint64_t>(i + 1));
    EXPECT_EQ(runs[i].state(), v1::RunRecord::CANCELLED);
    EXPECT_EQ(runs[i].has_served(), i == 0);
  }
  EXPECT_EQ(Seconds(runs[1].waited()), 3);
  EXPECT_EQ(Seconds(runs[2].waited()), 2);
}

TEST_F(RunRecordsTest, AForgottenGraphStaysNamedInWhatRan) {
  records_.Define(1, std::string(32, 'a'));
  Begin(Receive(0), 0);
  Finish(1);
  records_.Forget(1);
  Begin(Receive(1), 1);
  const Runs runs = Describe(2);
  EXPECT_EQ(runs[0].fingerprint().size(), 64u);
  EXPECT_EQ(runs[1].fingerprint(), "");
}

}  // namespace
}  // namespace djinn::worker
