// Tests captured graphs on a multi-worker device whose rows pass through the
// workers' stages in micro-batches.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client_lib/session/testing/shared_rows_fixture.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MicroBatchesTest : public SharedRowsFixture {
 protected:
  MicroBatchesTest() { second_ = Uploaded(16); }

  // Captures between = op1(weights, input); op2(between, second); output =
  // op3(second, between).
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> RecordLayers(
      double factor = 2, int last_op = 3) {
    const StoragePtr input = Uploaded(kRows);
    EXPECT_EQ(device_->graphs().Start(kLane), absl::OkStatus());
    StoragePtr between = device_->NewStorage(kRows);
    const StoragePtr output = device_->NewStorage(kRows);
    EXPECT_EQ(
        Record(
            *device_, kLane,
            MakeCall(1,
                     {{weights_, kReads}, {input, kReads}, {between, kCreates}},
                     {factor})),
        absl::OkStatus());
    Call(2, {{between, kReads | kWrites}, {second_, kReads}});
    EXPECT_EQ(
        Record(
            *device_, kLane,
            MakeCall(last_op,
                     {{second_, kReads}, {between, kReads}, {output, kCreates}},
                     {factor + 1})),
        absl::OkStatus());
    Drop(std::move(between));
    return Finish(input, output);
  }

  // Returns a plan with the first call on the first worker and the others on
  // the second, for micro-batches of `rows`.
  static v1::StageAnswer Plan(const FakeCoordinator::StagesAsked& asked,
                              const std::vector<uint64_t>& rows) {
    v1::StageAnswer answer;
    answer.set_virtual_device(asked.request.virtual_device());
    answer.set_number(asked.request.number());
    answer.mutable_batch()->set_rows(kRows);
    for (const uint64_t each : rows) {
      answer.mutable_batch()->add_parts()->set_rows(each);
    }
    for (uint32_t member = 0; member < 2; ++member) {
      answer.mutable_plan()->add_stages()->set_member(member);
    }
    answer.mutable_plan()->mutable_stages(0)->add_nodes(0);
    answer.mutable_plan()->mutable_stages(1)->add_nodes(1);
    answer.mutable_plan()->mutable_stages(1)->add_nodes(2);
    // Each view adds an offset, a size and a stride. The views are those of
    // inputs and intermediates: the input, between three times, and the output.
    for (const uint32_t gap : {4, 2, 2, 8, 2}) {
      answer.mutable_rows()->add_integer_gaps(gap);
      answer.mutable_rows()->add_slopes(1);
    }
    answer.add_cut_slots(1);
    return answer;
  }
  std::shared_ptr<const CapturedGraph> Shared(
      const std::vector<uint64_t>& rows) {
    auto captured_graph = RecordLayers();
    EXPECT_EQ(captured_graph.status(), absl::OkStatus());
    cluster_.coordinator().AnswerStages(
        Plan(cluster_.coordinator().WaitStagesAsked(), rows));
    return captured_graph.ok() ? *captured_graph : nullptr;
  }
  absl::Status CallAndRead(
      const std::shared_ptr<const CapturedGraph>& captured_graph,
      const StoragePtr& input) {
    auto output = Replay(captured_graph, input);
    if (!output.ok()) return output.status();
    const absl::Status read = ReadByte(*device_, kLane, *output);
    Drop(*std::move(output));
    return read;
  }
  // Returns the number of calls of each graph that the worker received, except
  // copies.
  std::vector<int> Defined(int worker) {
    std::vector<int> calls;
    for (const v1::Ordered& message : cluster_.worker(worker).seen().received) {
      if (!message.has_define_graph()) continue;
      const v1::Graph& graph = message.define_graph().graph();
      if (graph.operators(0).name().find("900") != std::string::npos) {
        continue;
      }
      calls.push_back(graph.nodes_size());
    }
    return calls;
  }

  StoragePtr second_;
};

TEST_F(MicroBatchesTest, RowsGoThroughTheStages) {
  const auto captured_graph = Shared({4, 4, 4});
  const StoragePtr input = Uploaded(kRows);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  }
  EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
  // The second worker received only its stage, and received it once, because
  // all micro-batches have the same graph.
  EXPECT_THAT(Defined(1), ElementsAre(2));
  EXPECT_EQ(cluster_.worker(1).seen().runs.size(), 9u);
  // The second layer's weights move once, and an intermediate moves in each
  // micro-batch. The outputs move back.
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1 + 9);
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 9);
  // Each stage has its own scalars.
  EXPECT_THAT(cluster_.worker(1).seen().runs.front().float_holes(),
              ElementsAre(3));
}

TEST_F(MicroBatchesTest, TransfersOfMicroBatchesKeepTheirOrder) {
  auto captured_graph = RecordLayers();
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  v1::StageAnswer answer =
      Plan(cluster_.coordinator().WaitStagesAsked(), {4, 4, 4});
  v1::StagePlan::Transfer* const transfer =
      answer.mutable_plan()->add_transfers();
  transfer->set_to_member(1);
  transfer->set_slot(2);
  transfer->set_remaining_seconds(0.5);
  cluster_.coordinator().AnswerStages(answer);
  const StoragePtr input = Uploaded(kRows);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(CallAndRead(*captured_graph, input), absl::OkStatus());
  }
  EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
  std::vector<uint64_t> rounds;
  for (const v1::Ordered& message : cluster_.worker(0).seen().received) {
    if (!message.has_offer() || !message.offer().has_remaining_seconds()) {
      continue;
    }
    EXPECT_EQ(message.offer().remaining_seconds(), 0.5);
    rounds.push_back(message.offer().round());
  }
  // Micro-batches move in order, and so do calls.
  EXPECT_EQ(rounds.size(), 6u);
  EXPECT_THAT(rounds, testing::WhenSorted(testing::ElementsAreArray(rounds)));
  EXPECT_EQ(std::set<uint64_t>(rounds.begin(), rounds.end()).size(), 6u);
}

TEST_F(MicroBatchesTest, PartsOfOtherSizesAreOtherRuns) {
  const auto captured_graph = Shared({5, 4, 3});
  const StoragePtr input = Uploaded(kRows);
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
  EXPECT_THAT(Defined(1), ElementsAre(2, 2, 2));
  EXPECT_EQ(cluster_.worker(1).seen().runs.size(), 6u);
}

TEST_F(MicroBatchesTest, AnotherOneThatIsAlikeHasItsOwnNumbers) {
  Shared({6, 6});
  const auto alike = RecordLayers(/*factor=*/7);
  ASSERT_TRUE(alike.ok()) << alike.status();
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
  EXPECT_EQ(CallAndRead(*alike, Uploaded(kRows)), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
  EXPECT_THAT(cluster_.worker(1).seen().runs.front().float_holes(),
              ElementsAre(8));
}

TEST_F(MicroBatchesTest, WeightsThatAreWrittenGoAgain) {
  const auto captured_graph = Shared({6, 6});
  const StoragePtr input = Uploaded(kRows);
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  Call(5, {{second_, kWrites}});
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
  // The weights are on the worker that wrote them, which may be either one.
  EXPECT_GE(Count(0, v1::Ordered::kOffer) + Count(1, v1::Ordered::kOffer),
            1 + 2 * 4);
}

TEST_F(MicroBatchesTest, FailedTransferFailsTheOutput) {
  const auto captured_graph = Shared({6, 6});
  const StoragePtr input = Uploaded(kRows);
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
  constexpr uint64_t kErrorId = 0x63;
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  const auto output = Replay(captured_graph, input);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(ErrorMetadataValue(device_->Synchronize(), "error_id"), "63");
  // The input is unchanged, and the next call executes.
  EXPECT_EQ(ReadByte(*device_, kLane, input), absl::OkStatus());
  EXPECT_EQ(CallAndRead(captured_graph, input), absl::OkStatus());
}

TEST_F(MicroBatchesTest, APlanThatMakesNoSenseIsNone) {
  int op = 10;
  const auto refusal_after = [&](auto change) {
    const int last_op = ++op;
    EXPECT_EQ(RecordLayers(2, last_op).status(), absl::OkStatus());
    v1::StageAnswer answer =
        Plan(cluster_.coordinator().WaitStagesAsked(), {6, 6});
    change(&answer);
    cluster_.coordinator().AnswerStages(answer);
    return std::string(RecordLayers(2, last_op).status().message());
  };
  const auto stage = [](v1::StageAnswer* answer, int i) {
    return answer->mutable_plan()->mutable_stages(i);
  };
  EXPECT_EQ(refusal_after([](v1::StageAnswer*) {}), "");
  EXPECT_THAT(refusal_after([&](auto* a) { stage(a, 1)->set_member(0); }),
              HasSubstr("member 0"));
  EXPECT_THAT(refusal_after([&](auto* a) { stage(a, 1)->set_member(2); }),
              HasSubstr("member 2"));
  EXPECT_THAT(refusal_after([&](auto* a) { stage(a, 0)->add_nodes(3); }),
              HasSubstr("node 3 in stage 0"));
  EXPECT_THAT(refusal_after([&](auto* a) { stage(a, 0)->add_nodes(0); }),
              HasSubstr("node 0 in stage 0"));
  EXPECT_THAT(refusal_after([&](auto* a) { stage(a, 0)->clear_nodes(); }),
              HasSubstr("nothing in stage 0"));
  EXPECT_THAT(refusal_after(
                  [&](auto* a) { stage(a, 1)->mutable_nodes()->RemoveLast(); }),
              HasSubstr("stages of 2 nodes"));
  EXPECT_THAT(refusal_after([&](auto* a) {
                stage(a, 0)->set_nodes(0, 1);
                stage(a, 1)->set_nodes(0, 0);
              }),
              HasSubstr("comes after stage 1"));
  EXPECT_THAT(refusal_after([&](auto* a) {
                a->mutable_batch()->mutable_parts(1)->set_member(1);
              }),
              HasSubstr("begins at member 1"));
  EXPECT_THAT(refusal_after([&](auto* a) {
                a->mutable_batch()->mutable_parts(1)->set_rows(5);
              }),
              HasSubstr("11 rows together"));
}

}  // namespace
}  // namespace djinn
