// Tests captured graphs on a multi-worker device that divides their rows.
#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/testing/shared_rows_fixture.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SharedRowsTest : public SharedRowsFixture {
 protected:
  // Captures output = op1(weights, input).
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> RecordLayer(
      double factor = 2) {
    const StoragePtr input = Uploaded(kRows);
    EXPECT_EQ(device_->graphs().Start(kLane), absl::OkStatus());
    const StoragePtr output = device_->NewStorage(kRows);
    EXPECT_EQ(
        Record(*device_, kLane,
               MakeCall(
                   1, {{weights_, kReads}, {input, kReads}, {output, kCreates}},
                   {factor})),
        absl::OkStatus());
    return Finish(input, output);
  }
  // Returns a plan with the first rows on the first worker and the rest on the
  // second.
  static v1::StageAnswer Plan(const FakeCoordinator::StagesAsked& asked,
                              uint64_t first_rows = 5) {
    v1::StageAnswer answer;
    answer.set_virtual_device(asked.request.virtual_device());
    answer.set_number(asked.request.number());
    answer.mutable_batch()->set_rows(kRows);
    for (uint32_t member = 0; member < 2; ++member) {
      v1::BatchPlan::Part* const part = answer.mutable_batch()->add_parts();
      part->set_member(member);
      part->set_rows(member == 0 ? first_rows : kRows - first_rows);
    }
    // These are the sizes in the input's view and in the output's.
    answer.mutable_rows()->add_integer_gaps(4);
    answer.mutable_rows()->add_integer_gaps(2);
    answer.mutable_rows()->add_slopes(1);
    answer.mutable_rows()->add_slopes(1);
    answer.add_cut_slots(1);
    return answer;
  }
  // Returns a captured graph whose rows are divided.
  std::shared_ptr<const CapturedGraph> Shared() {
    auto captured_graph = RecordLayer();
    EXPECT_EQ(captured_graph.status(), absl::OkStatus());
    cluster_.coordinator().AnswerStages(
        Plan(cluster_.coordinator().WaitStagesAsked()));
    return captured_graph.ok() ? *captured_graph : nullptr;
  }
};

TEST_F(SharedRowsTest, EachMemberCarriesOutItsRows) {
  const auto captured_graph = RecordLayer();
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  const StoragePtr input = Uploaded(kRows);
  // The plan is not known yet.
  EXPECT_EQ(ErrorReason(Replay(*captured_graph, input).status()),
            "STALE_RECORDING");
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  EXPECT_THAT(asked.request.recording().given(), ElementsAre(1));
  EXPECT_THAT(asked.request.recording().outputs(), ElementsAre(2));
  cluster_.coordinator().AnswerStages(Plan(asked));
  for (int i = 0; i < 3; ++i) {
    const auto output = Replay(*captured_graph, input);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ((*output)->size_bytes(), kRows);
    EXPECT_EQ(ReadByte(*device_, kLane, *output), absl::OkStatus());
    Drop(*output);
  }
  EXPECT_THAT(Sizes(0), ElementsAre(-7, -7, -7));
  EXPECT_THAT(Sizes(1), ElementsAre(-5, -5, -5));
  // The weights move once, while the rows of the input and of the output move
  // each time.
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 4);
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 3);
  // Temporary storages are freed with the next messages. The worker therefore
  // has only the copy of the weights and, at most, the rows of the last call's
  // input and output.
  EXPECT_LE(cluster_.worker(1).live_storages().size(), 3u);
}

TEST_F(SharedRowsTest, AnotherOneThatIsAlikeNeedsNoQuestion) {
  Shared();
  const auto alike = RecordLayer(/*factor=*/3);
  ASSERT_TRUE(alike.ok()) << alike.status();
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
  ASSERT_TRUE(Replay(*alike, Uploaded(kRows)).ok());
  EXPECT_THAT(Sizes(1), ElementsAre(-5));
  // The second graph has its own scalars.
  EXPECT_THAT(cluster_.worker(1).seen().runs.back().float_holes(),
              ElementsAre(3));
}

TEST_F(SharedRowsTest, WeightsThatAreWrittenGoAgain) {
  const auto captured_graph = Shared();
  const StoragePtr input = Uploaded(kRows);
  ASSERT_TRUE(Replay(captured_graph, input).ok());
  Call(5, {{weights_, kWrites}});
  ASSERT_TRUE(Replay(captured_graph, input).ok());
  EXPECT_THAT(Sizes(1), ElementsAre(-5, -5));
  // The weights move to and from the worker, with the rows.
  EXPECT_EQ(Count(0, v1::Ordered::kOffer) + Count(1, v1::Ordered::kOffer), 6);
}

TEST_F(SharedRowsTest, RowsThatDoNotArriveFailTheOutput) {
  const auto captured_graph = Shared();
  const StoragePtr input = Uploaded(kRows);
  ASSERT_TRUE(Replay(captured_graph, input).ok());
  EXPECT_THAT(Sizes(1), ElementsAre(-5));
  constexpr uint64_t kErrorId = 0x63;
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  const auto output = Replay(captured_graph, input);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(ErrorMetadataValue(device_->Synchronize(), "error_id"), "63");
  // The input is unchanged.
  EXPECT_EQ(ReadByte(*device_, kLane, input), absl::OkStatus());
}

TEST_F(SharedRowsTest, InStrictModeItIsRefused) {
  const auto captured_graph = Shared();
  SetFastExecution(false);
  EXPECT_EQ(ErrorReason(Replay(captured_graph, Uploaded(kRows)).status()),
            "STALE_RECORDING");
  EXPECT_EQ(ErrorReason(RecordLayer().status()), "SPANS_WORKERS");
}

TEST_F(SharedRowsTest, WhyThereIsNoPlanIsSaid) {
  ASSERT_TRUE(RecordLayer().ok());
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  v1::StageAnswer answer;
  answer.set_virtual_device(0);
  answer.set_number(asked.request.number());
  answer.mutable_batch()->set_problem("rows are mixed");
  cluster_.coordinator().AnswerStages(answer);
  const absl::Status refused = RecordLayer().status();
  EXPECT_EQ(ErrorReason(refused), "SPANS_WORKERS");
  EXPECT_THAT(refused.message(), HasSubstr("rows are mixed"));
}

TEST_F(SharedRowsTest, APlanThatMakesNoSenseIsNone) {
  const auto refusal_after = [&](int op, auto change) {
    const auto record = [&] {
      const StoragePtr input = Uploaded(kRows);
      EXPECT_EQ(device_->graphs().Start(kLane), absl::OkStatus());
      const StoragePtr output = device_->NewStorage(kRows);
      Call(op, {{weights_, kReads}, {input, kReads}, {output, kCreates}});
      return Finish(input, output).status();
    };
    EXPECT_EQ(record(), absl::OkStatus());
    v1::StageAnswer answer = Plan(cluster_.coordinator().WaitStagesAsked());
    change(&answer);
    cluster_.coordinator().AnswerStages(answer);
    return std::string(record().message());
  };
  const auto part = [](v1::StageAnswer* answer, int i) {
    return answer->mutable_batch()->mutable_parts(i);
  };
  EXPECT_THAT(refusal_after(10, [&](auto* a) { part(a, 1)->set_member(2); }),
              HasSubstr("member 2"));
  EXPECT_THAT(refusal_after(11, [&](auto* a) { part(a, 1)->set_member(0); }),
              HasSubstr("member 0"));
  EXPECT_THAT(refusal_after(12, [&](auto* a) { part(a, 1)->set_rows(8); }),
              HasSubstr("8 rows of 12"));
  EXPECT_THAT(refusal_after(13, [&](auto* a) { part(a, 1)->set_rows(6); }),
              HasSubstr("11 rows together"));
  EXPECT_THAT(refusal_after(14, [&](auto* a) { a->set_cut_slots(0, 0); }),
              HasSubstr("slot 0"));
  EXPECT_THAT(
      refusal_after(15, [&](auto* a) { a->mutable_rows()->set_slopes(1, 2); }),
      HasSubstr("plan of a batch"));
  EXPECT_NE(
      refusal_after(
          16, [&](auto* a) { a->mutable_rows()->set_integer_gaps(0, 99); }),
      "");
}

TEST_F(SharedRowsTest, FunctionWhoseRowsCannotBeSharedIsRefused) {
  const StoragePtr input = Uploaded(kRows);
  ASSERT_EQ(device_->graphs().Start(kLane), absl::OkStatus());
  EXPECT_EQ(ErrorReason(device_->graphs().Start(kLane)), "ALREADY_RECORDING");
  StoragePtr output = device_->NewStorage(kRows);
  Call(1, {{weights_, kWrites}, {input, kReads}, {output, kCreates}});
  EXPECT_THAT(Finish(input, output).status().message(),
              HasSubstr("it writes what was there before"));
  ASSERT_EQ(device_->graphs().Start(kLane), absl::OkStatus());
  output = device_->NewStorage(kRows);
  Call(1, {{weights_, kReads}, {input, kReads}, {output, kCreates}});
  EXPECT_EQ(ReadByte(*device_, kLane, output), absl::OkStatus());
  EXPECT_EQ(ErrorReason(Finish(input, output).status()), "READS_VALUE");
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
}

}  // namespace
}  // namespace djinn
