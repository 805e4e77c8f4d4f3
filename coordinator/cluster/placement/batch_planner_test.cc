#include "coordinator/cluster/placement/batch_planner.h"

#include <string>
#include <utility>
#include <vector>

#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StageMembers Members(std::vector<uint32_t> numbers) {
  StageMembers members;
  for (const uint32_t number : numbers) {
    members.worker_ids.push_back("worker-" + std::to_string(number));
    members.workers.push_back({"cpu", {1e9, 1e15, 0}, 1e12});
  }
  members.numbers = std::move(numbers);
  return members;
}

// Builds rows times a matrix, slot 1, plus a vector, slot 3.
semantics::Builder Layer(int64_t rows) {
  semantics::Builder builder;
  const srg::TensorView y = builder.Linear(builder.Bound({rows, 64}), 32);
  builder.Call("add", {y, builder.Bound({32}), int64_t{1}}, {rows, 32},
               srg::DataType::kFloat32, "Tensor");
  return builder;
}

v1::StageAnswer Ask(const semantics::Builder& builder,
                    const std::vector<uint32_t>& given, uint32_t output,
                    const StageMembers& members) {
  v1::StageRequest request;
  request.set_virtual_device(3);
  request.set_number(17);
  request.mutable_recording()->mutable_given()->Add(given.begin(), given.end());
  request.mutable_recording()->add_outputs(output);
  return AnswerBatchRequest(request, srg::ToProto(builder.graph()), "\x01\xff",
                            members);
}

TEST(BatchPlannerTest, SaysWhoDoesWhichRows) {
  // A replica between them has no lease at the moment.
  const v1::StageAnswer answer = Ask(Layer(64), {0, 3}, 4, Members({0, 2}));
  EXPECT_EQ(answer.virtual_device(), 3u);
  EXPECT_EQ(answer.number(), 17u);
  EXPECT_FALSE(answer.has_plan());
  const v1::BatchPlan& plan = answer.batch();
  EXPECT_EQ(plan.problem(), "");
  EXPECT_EQ(plan.fingerprint(), "01ff");
  EXPECT_EQ(plan.rows(), 64u);
  EXPECT_EQ(plan.weight_bytes(), 64u * 32 * 4);
  ASSERT_EQ(plan.parts_size(), 2);
  EXPECT_EQ(plan.parts(0).member(), 0u);
  EXPECT_EQ(plan.parts(0).rows() + plan.parts(1).rows(), 64u);
  EXPECT_EQ(plan.parts(1).member(), 2u);
  EXPECT_EQ(plan.parts(1).worker_id(), "worker-2");
  EXPECT_EQ(plan.parts(1).input_bytes(), (plan.parts(1).rows() * 64 + 32) * 4);
  EXPECT_EQ(plan.parts(1).output_bytes(), plan.parts(1).rows() * 32 * 4);
  EXPECT_GT(plan.alone_seconds(), 1.9 * plan.parts(0).compute_seconds());
  EXPECT_THAT(answer.cut_slots(), ElementsAre(0));
  // With the answer's size hole, the graph becomes that of fewer rows.
  v1::Graph varying = srg::ToProto(Layer(64).graph());
  *varying.mutable_size_hole() = answer.rows();
  const auto part = srg::AtSize(*srg::FromProto(varying), 10 - 64);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(*part, Layer(10).graph());
}

TEST(BatchPlannerTest, SaysWhyThereIsNoPlan) {
  const auto problem = [](const v1::StageAnswer& answer) {
    EXPECT_EQ(answer.batch().parts_size(), 0);
    EXPECT_TRUE(answer.cut_slots().empty());
    EXPECT_FALSE(answer.has_rows());
    return answer.batch().problem();
  };
  EXPECT_EQ(problem(Ask(Layer(64), {0, 3}, 4, Members({0}))),
            "the virtual device has no two workers");
  EXPECT_EQ(problem(Ask(Layer(64), {0, 3}, 4, Members({1, 2}))),
            "the virtual device has no two workers");
  EXPECT_THAT(problem(Ask(Layer(64), {0, 9}, 4, Members({0, 1}))),
              HasSubstr("slot 9"));
  EXPECT_THAT(problem(Ask(Layer(64), {0, 0}, 4, Members({0, 1}))),
              HasSubstr("slot 0"));
  EXPECT_THAT(problem(Ask(Layer(64), {0}, 1, Members({0, 1}))),
              HasSubstr("slot 1"));
  semantics::Builder mixing;
  const srg::TensorView x = mixing.Bound({64, 8});
  mixing.Call("softmax", {x, int64_t{0}, std::monostate()}, {64, 8},
              srg::DataType::kFloat32, "int");
  EXPECT_THAT(problem(Ask(mixing, {0}, 1, Members({0, 1}))),
              HasSubstr("aten::softmax"));
}

TEST(BatchPlannerTest, SaysWhatWasWeighedWhereItDoesNotPay) {
  StageMembers members = Members({0, 1});
  for (auto& worker : members.workers) worker.link_bytes_per_second = 1;
  const v1::StageAnswer answer = Ask(Layer(64), {0, 3}, 4, members);
  EXPECT_THAT(answer.batch().problem(), HasSubstr("on one worker alone"));
  EXPECT_EQ(answer.batch().rows(), 64u);
  EXPECT_GT(answer.batch().alone_seconds(), 0);
}

TEST(BatchPlannerTest, BatchWithoutRoomIsCutIntoStages) {
  semantics::Builder layers;
  const srg::TensorView x = layers.Linear(layers.Bound({64, 32}), 32);
  layers.Linear(x, 32);
  StageMembers members = Members({0, 2});
  members.workers[1].available_bytes = 32 * 32 * 4;
  const v1::StageAnswer answer = Ask(layers, {0}, 4, members);
  const v1::BatchPlan& plan = answer.batch();
  EXPECT_EQ(plan.problem(), "");
  EXPECT_EQ(plan.rows(), 64u);
  ASSERT_GE(plan.parts_size(), 2);
  uint64_t rows = 0;
  for (const v1::BatchPlan::Part& part : plan.parts()) {
    EXPECT_EQ(part.member(), 0u);
    EXPECT_EQ(part.worker_id(), "");
    EXPECT_GT(part.compute_seconds(), 0);
    rows += part.rows();
  }
  EXPECT_EQ(rows, 64u);
  EXPECT_LT(plan.stage_seconds(), 0.7 * plan.alone_seconds());
  EXPECT_THAT(answer.cut_slots(), ElementsAre(0));
  ASSERT_EQ(answer.plan().stages_size(), 2);
  EXPECT_EQ(answer.plan().fingerprint(), plan.fingerprint());
  EXPECT_EQ(answer.plan().stages(1).worker_id(), "worker-2");
  EXPECT_THAT(answer.plan().stages(0).nodes(), ElementsAre(0));
  EXPECT_THAT(answer.plan().stages(1).nodes(), ElementsAre(1));
  EXPECT_TRUE(answer.member_of_slot().empty());
}

}  // namespace
}  // namespace djinn::coordinator
