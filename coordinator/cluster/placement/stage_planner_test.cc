#include "coordinator/cluster/placement/stage_planner.h"

#include "common/srg/proto_codec.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::coordinator {
namespace {

StageMembers Members(std::vector<uint32_t> numbers) {
  StageMembers members;
  for (const uint32_t number : numbers) {
    members.worker_ids.push_back("worker-" + std::to_string(number));
    members.workers.push_back({"cpu", {1e9, 1e15, 0}, 1e12});
  }
  members.numbers = std::move(numbers);
  return members;
}

v1::StageRequest Request() {
  v1::StageRequest request;
  request.set_virtual_device(3);
  request.set_number(17);
  return request;
}

TEST(StagePlannerTest, SaysWhichMemberKeepsWhat) {
  semantics::Builder builder;
  srg::TensorView x = builder.Bound({256, 64});
  for (int i = 0; i < 2; ++i) x = builder.Linear(x, 64);
  const v1::Graph graph = srg::ToProto(builder.graph());
  // A replica between them has no lease at the moment.
  const v1::StageAnswer answer =
      AnswerStageRequest(Request(), graph, "\x01\xff", Members({0, 2}));
  EXPECT_EQ(answer.virtual_device(), 3u);
  EXPECT_EQ(answer.number(), 17u);
  EXPECT_EQ(answer.plan().fingerprint(), "01ff");
  EXPECT_EQ(answer.plan().problem(), "");
  ASSERT_EQ(answer.plan().stages_size(), 2);
  EXPECT_EQ(answer.plan().stages(1).member(), 2u);
  EXPECT_EQ(answer.plan().stages(1).worker_id(), "worker-2");
  EXPECT_EQ(answer.plan().stages(1).weight_bytes(), 64u * 64 * 4);
  EXPECT_EQ(answer.plan().stages(1).input_bytes(), 256u * 64 * 4);
  EXPECT_GT(answer.plan().alone_seconds(),
            1.9 * answer.plan().stages(0).compute_seconds());
  // The input, two weights and two results.
  const std::vector<uint32_t> kept(answer.member_of_slot().begin(),
                                   answer.member_of_slot().end());
  EXPECT_EQ(kept, (std::vector<uint32_t>{0, 1, 0, 3, 0}));
}

TEST(StagePlannerTest, TheScheduleNamesNodesSlotsAndTransfers) {
  semantics::Builder builder;
  srg::TensorView x = builder.Bound({256, 64});
  for (int i = 0; i < 2; ++i) x = builder.Linear(x, 64);
  const v1::StageAnswer answer = AnswerStageRequest(
      Request(), srg::ToProto(builder.graph()), "f", Members({0, 2}));
  ASSERT_EQ(answer.plan().stages_size(), 2);
  for (int stage = 0; stage < 2; ++stage) {
    const v1::StagePlan::Stage& found = answer.plan().stages(stage);
    ASSERT_EQ(found.nodes_size(), 1);
    EXPECT_EQ(found.nodes(0), static_cast<uint32_t>(stage));
    ASSERT_EQ(found.remaining_seconds_size(), 1);
    ASSERT_EQ(found.kept_slots_size(), 1);
    EXPECT_EQ(found.kept_slots(0), stage == 0 ? 1u : 3u);
  }
  ASSERT_EQ(answer.plan().transfers_size(), 1);
  const v1::StagePlan::Transfer& transfer = answer.plan().transfers(0);
  EXPECT_EQ(transfer.from_member(), 0u);
  EXPECT_EQ(transfer.to_member(), 2u);
  // The output of the first layer.
  EXPECT_EQ(transfer.slot(), 2u);
  EXPECT_EQ(transfer.size_bytes(), answer.plan().stages(1).input_bytes());
  EXPECT_EQ(transfer.seconds(), answer.plan().stages(1).transfer_seconds());
  EXPECT_EQ(transfer.remaining_seconds(),
            answer.plan().stages(1).compute_seconds());
  EXPECT_EQ(answer.plan().stages(1).remaining_seconds(0),
            transfer.remaining_seconds());
  // The stage's own time, plus the transfer and the rest.
  EXPECT_NEAR(answer.plan().stages(0).remaining_seconds(0),
              answer.plan().stages(0).compute_seconds() + transfer.seconds() +
                  transfer.remaining_seconds(),
              1e-12);
}

TEST(StagePlannerTest, APlanInForceGoesOnUnlessItsWorkersChanged) {
  semantics::Builder builder;
  srg::TensorView x = builder.Bound({256, 64});
  for (int i = 0; i < 24; ++i) x = builder.Linear(x, 64);
  const v1::Graph graph = srg::ToProto(builder.graph());
  StageMembers members = Members({0, 2});
  const v1::StageAnswer first =
      AnswerStageRequest(Request(), graph, "f", members);
  EXPECT_EQ(first.plan().stages(0).node_count(), 12u);
  // The worker is a little slower than before.
  members.workers[1].speed.flops_per_second /= 1.1;
  const v1::StageAnswer fresh =
      AnswerStageRequest(Request(), graph, "f", members);
  EXPECT_EQ(fresh.plan().stages(0).node_count(), 13u);
  members.in_force = first.plan();
  const v1::StageAnswer kept =
      AnswerStageRequest(Request(), graph, "f", members);
  EXPECT_EQ(kept.plan().stages(0).node_count(), 12u);
  EXPECT_GT(kept.plan().stages(1).compute_seconds(),
            1.05 * first.plan().stages(1).compute_seconds());
  // The plan in force was for another worker.
  members.worker_ids[1] = "another";
  EXPECT_EQ(AnswerStageRequest(Request(), graph, "f", members)
                .plan()
                .stages(0)
                .node_count(),
            13u);
  // The worker is much slower.
  members.worker_ids[1] = "worker-2";
  members.workers[1].speed.flops_per_second /= 3;
  EXPECT_EQ(AnswerStageRequest(Request(), graph, "f", members)
                .plan()
                .stages(0)
                .node_count(),
            19u);
}

TEST(StagePlannerTest, SaysWhyThereIsNoPlan) {
  semantics::Builder builder;
  builder.Linear(builder.Bound({4, 4}), 4);
  const v1::Graph graph = srg::ToProto(builder.graph());
  const v1::StageAnswer alone =
      AnswerStageRequest(Request(), graph, "f", Members({0}));
  EXPECT_EQ(alone.plan().stages_size(), 0);
  EXPECT_EQ(alone.plan().problem(), "the virtual device has no second worker");
  EXPECT_EQ(alone.member_of_slot_size(), 0);
}

}  // namespace
}  // namespace djinn::coordinator
