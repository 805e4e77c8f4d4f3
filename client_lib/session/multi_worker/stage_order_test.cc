#include "client_lib/session/multi_worker/stage_order.h"

#include <limits>

#include "gtest/gtest.h"

namespace djinn {
namespace {

// Returns a graph of a layer, an activation, another layer, and a second use of
// the first layer's weight, as in a backward pass.
v1::Graph MakeGraph() {
  v1::Graph graph;
  for (int i = 0; i < 4; ++i) graph.add_slots();
  const auto add = [&](std::initializer_list<uint32_t> slots) {
    v1::Node* const node = graph.add_nodes();
    for (const uint32_t slot : slots) {
      node->add_arguments()->mutable_tensor()->set_slot(slot);
    }
  };
  add({0, 1});
  add({1});
  add({2, 1});
  add({0, 1, 0});
  return graph;
}

v1::StagePlan MakePlan(double first = 5) {
  v1::StagePlan plan;
  v1::StagePlan::Stage* const stage = plan.add_stages();
  stage->add_kept_slots(0);
  for (const uint32_t node : {0, 1, 3}) stage->add_nodes(node);
  for (const double seconds : {first, 4.0, 1.0}) {
    stage->add_remaining_seconds(seconds);
  }
  v1::StagePlan::Stage* const other = plan.add_stages();
  other->add_kept_slots(2);
  other->add_nodes(2);
  other->add_remaining_seconds(2);
  return plan;
}

TEST(StageOrderTest, EachUseIsTheNextNodes) {
  StageOrder order(MakeGraph(), MakePlan());
  for (int run = 0; run < 2; ++run) {
    StageOrder::Use use = order.Next(0);
    EXPECT_TRUE(use.begins_run);
    EXPECT_EQ(use.remaining_seconds, 5);
    use = order.Next(2);
    EXPECT_FALSE(use.begins_run);
    EXPECT_EQ(use.remaining_seconds, 2);
    use = order.Next(0);
    EXPECT_FALSE(use.begins_run);
    EXPECT_EQ(use.remaining_seconds, 1);
  }
}

TEST(StageOrderTest, ARunThatIsLeftInItsMiddleIsOverWithTheNext) {
  StageOrder order(MakeGraph(), MakePlan());
  EXPECT_TRUE(order.Next(0).begins_run);
  EXPECT_FALSE(order.Next(2).begins_run);
  EXPECT_TRUE(order.Next(2).begins_run);
  EXPECT_EQ(order.Next(0).remaining_seconds, 5);
}

TEST(StageOrderTest, SlotThatNoStageKeepsHasNoTime) {
  StageOrder order(MakeGraph(), MakePlan());
  for (const uint32_t slot : {1, 3, 4, 1000}) {
    const StageOrder::Use use = order.Next(slot);
    EXPECT_FALSE(use.begins_run);
    EXPECT_EQ(use.remaining_seconds, StageOrder::kUnknown);
  }
  EXPECT_FALSE(StageOrder().Next(0).begins_run);
}

TEST(StageOrderTest, TimeThatThePlanOmitsIsUnknown) {
  StageOrder negative(MakeGraph(), MakePlan(-1));
  EXPECT_EQ(negative.Next(0).remaining_seconds, StageOrder::kUnknown);
  StageOrder unreal(MakeGraph(),
                    MakePlan(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(unreal.Next(0).remaining_seconds, StageOrder::kUnknown);
  v1::StagePlan short_plan = MakePlan();
  short_plan.mutable_stages(1)->clear_remaining_seconds();
  short_plan.mutable_stages(0)->add_nodes(1000);
  short_plan.mutable_stages(0)->add_remaining_seconds(7);
  short_plan.mutable_stages(0)->add_kept_slots(1000);
  StageOrder order(MakeGraph(), short_plan);
  EXPECT_EQ(order.Next(2).remaining_seconds, StageOrder::kUnknown);
  EXPECT_EQ(order.Next(0).remaining_seconds, 5);
}

}  // namespace
}  // namespace djinn
