#include "scheduler/placement/stages/stages.h"

#include <limits>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/analysis.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::scheduler {
namespace {

using semantics::Builder;

constexpr double kFlops = 1e9;

// A worker so fast that only operations count, unless a test says otherwise.
StageWorker Worker(double flops = kFlops, double link = 1e12) {
  return {"cpu", {flops, 1e15, 0}, link};
}

class StagesTest : public ::testing::Test {
 protected:
  // Builds x times matrices of these widths, with an activation between them.
  void Layers(const std::vector<int64_t>& widths, int64_t rows = 256) {
    srg::TensorView x = builder_.Bound({rows, widths[0]});
    for (size_t i = 1; i < widths.size(); ++i) {
      x = builder_.Linear(x, widths[i]);
      x = builder_.Call("relu", {x}, {rows, widths[i]});
    }
  }

  absl::StatusOr<StagePlan> Plan(const std::vector<StageWorker>& workers,
                                 const std::vector<uint32_t>& in_force = {}) {
    const semantics::Meaning meaning = semantics::Analyze(builder_.graph());
    absl::StatusOr<StagePlan> plan =
        PlanStages(builder_.graph(), meaning, workers, factors_, in_force);
    if (plan.ok()) CheckBindings(*plan);
    return plan;
  }

  // Makes all work take `factor` times the roofline on such devices.
  void Learn(const std::string& device, double factor) {
    for (int i = 0; i < 200; ++i) {
      for (int op_class = 0; op_class < 16; ++op_class) {
        for (int phase = 0; phase < semantics::kPhaseCount; ++phase) {
          factors_.Learn(static_cast<semantics::OpClass>(op_class),
                         static_cast<semantics::Phase>(phase), device, 1,
                         factor);
        }
      }
    }
  }

  // Returns the worker of each node, for plans in which all workers have a
  // stage.
  static std::vector<uint32_t> WorkerOfNode(const StagePlan& plan) {
    std::vector<uint32_t> workers;
    for (const uint32_t stage : plan.stage_of_node) {
      workers.push_back(plan.stages[stage].worker);
    }
    return workers;
  }

  // Checks that the plan's nodes and transfers add up to its stages.
  static void CheckBindings(const StagePlan& plan) {
    std::vector<uint32_t> nodes(plan.stages.size());
    for (const uint32_t stage : plan.stage_of_node) ++nodes.at(stage);
    std::vector<uint64_t> bytes(plan.stages.size());
    std::vector<double> seconds(plan.stages.size());
    double before = std::numeric_limits<double>::infinity();
    for (const StageTransfer& transfer : plan.transfers) {
      EXPECT_NE(transfer.from, transfer.to);
      bytes.at(transfer.to) += transfer.size_bytes;
      seconds.at(transfer.to) += transfer.seconds;
      EXPECT_LE(transfer.remaining_seconds, before);
      before = transfer.remaining_seconds;
    }
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      EXPECT_EQ(nodes[i], plan.stages[i].node_count) << i;
      EXPECT_EQ(bytes[i], plan.stages[i].input_bytes) << i;
      EXPECT_NEAR(seconds[i], plan.stages[i].transfer_seconds,
                  1e-9 + 1e-6 * seconds[i])
          << i;
    }
  }

  // Returns the workers of the slots that stay.
  std::vector<int> Kept(const StagePlan& plan) {
    std::vector<int> kept;
    for (const int worker : plan.worker_of_slot) {
      if (worker >= 0) kept.push_back(worker);
    }
    return kept;
  }

  Builder builder_;
  semantics::CostFactors factors_;
};

TEST_F(StagesTest, EqualLayersGoToEqualWorkersEqually) {
  Layers({64, 64, 64, 64, 64, 64, 64});
  const absl::StatusOr<StagePlan> plan = Plan({Worker(), Worker(), Worker()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 1, 1, 2, 2}));
  ASSERT_EQ(plan->stages.size(), 3u);
  for (const StagePlan::Stage& stage : plan->stages) {
    EXPECT_EQ(stage.node_count, 4u);
    EXPECT_EQ(stage.weight_bytes, 2u * 64 * 64 * 4);
  }
  // The input of a stage is the output of the stage before it.
  EXPECT_EQ(plan->stages[0].input_bytes, 0u);
  EXPECT_EQ(plan->stages[1].input_bytes, 256u * 64 * 4);
  EXPECT_NEAR(plan->alone_seconds / plan->bottleneck_seconds(), 3, 0.01);
}

TEST_F(StagesTest, AFasterWorkerGetsMore) {
  Layers({64, 64, 64, 64, 64, 64, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(), Worker(4 * kFlops), Worker()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 1, 1, 1, 1, 2}));
}

TEST_F(StagesTest, LearnedFactorsOfADeviceKindCount) {
  Layers({64, 64, 64, 64, 64, 64, 64});
  std::vector<StageWorker> workers = {Worker(), Worker()};
  workers[1].device = "other";
  Learn("other", 5);
  const absl::StatusOr<StagePlan> plan = Plan(workers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 0, 0, 0, 1}));
}

TEST_F(StagesTest, ItIsCutWhereLittleCrosses) {
  // Operations are even at 64, but only 8 numbers per row cross after the
  // second layer.
  Layers({64, 64, 8, 64, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(kFlops, 1e7), Worker(kFlops, 1e7)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(plan->stages[1].input_bytes, 256u * 8 * 4);
}

TEST_F(StagesTest, ASlowLinkLeavesItWhole) {
  Layers({64, 64, 64, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(kFlops, 1e5), Worker(kFlops, 1e5)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 1u);
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 0}));
}

TEST_F(StagesTest, AllOfItGoesToAWorkerThatIsMuchFaster) {
  Layers({64, 64, 64, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(kFlops, 1e5), Worker(8 * kFlops, 1e5)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{1, 1, 1}));
}

TEST_F(StagesTest, AStageHasRoomForItsWeights) {
  Layers({64, 64, 64, 64, 64});
  std::vector<StageWorker> workers = {Worker(), Worker()};
  workers[0].available_bytes = 64 * 64 * 4;
  const absl::StatusOr<StagePlan> plan = Plan(workers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 1, 1, 1}));

  workers[1].available_bytes = 2 * 64 * 64 * 4;
  const absl::Status none = Plan(workers).status();
  EXPECT_EQ(ErrorReason(none), "NOT_DIVISIBLE");
  EXPECT_NE(none.message().find("65536 bytes of weights"), std::string::npos)
      << none;
}

TEST_F(StagesTest, AValueThatSeveralNodesOfAStageReadComesOnce) {
  const srg::TensorView x = builder_.Bound({256, 64});
  const srg::TensorView a = builder_.Linear(x, 64);
  srg::TensorView b = builder_.Linear(a, 64);
  b = builder_.Call("add", {b, a, srg::FloatHole{0}}, {256, 64});
  b = builder_.Call("add", {b, a, srg::FloatHole{0}}, {256, 64});
  const absl::StatusOr<StagePlan> plan = Plan({Worker(), Worker()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[1].input_bytes, 256u * 64 * 4);
}

TEST_F(StagesTest, ATiedWeightTakesItsSecondUseAlong) {
  const srg::TensorView x = builder_.Bound({256, 64});
  const srg::TensorView tied = builder_.Bound({64, 64});
  srg::TensorView y =
      builder_.Call("linear", {x, tied, std::monostate()}, {256, 64});
  for (int i = 0; i < 4; ++i) y = builder_.Linear(y, 64);
  builder_.Call("linear", {y, tied, std::monostate()}, {256, 64});
  const absl::StatusOr<StagePlan> plan = Plan({Worker(), Worker()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Two of six products belong to the first unit.
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 1, 1, 1}));
  EXPECT_EQ(plan->stages[0].node_count, 3u);
  // The last stage's result returns to the first worker.
  EXPECT_EQ(plan->stages[0].input_bytes, 256u * 64 * 4);
}

TEST_F(StagesTest, GraphThatNeedsAllWeightsAtOnceIsNotCut) {
  const srg::TensorView x = builder_.Bound({256, 64});
  const srg::TensorView first = builder_.Bound({64, 64});
  const srg::TensorView second = builder_.Bound({64, 64});
  srg::TensorView y =
      builder_.Call("linear", {x, first, std::monostate()}, {256, 64});
  y = builder_.Call("linear", {y, second, std::monostate()}, {256, 64});
  builder_.Call("mm", {first, second}, {64, 64});
  const absl::StatusOr<StagePlan> plan = Plan({Worker(), Worker()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stages.size(), 1u);
}

TEST_F(StagesTest, MoreCriticalTransferMovesFirst) {
  const srg::TensorView x = builder_.Bound({256, 64});
  // One value is used last; all that follows depends on the other.
  const srg::TensorView late = builder_.Linear(x, 64);
  srg::TensorView y = builder_.Linear(x, 64);
  const uint32_t first = y.slot;
  for (int i = 0; i < 2; ++i) y = builder_.Linear(y, 64);
  builder_.Call("add", {y, late, srg::FloatHole{0}}, {256, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(kFlops, 1e8), Worker(kFlops, 1e8)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stage_of_node, (std::vector<uint32_t>{0, 0, 1, 1, 1}));
  ASSERT_EQ(plan->transfers.size(), 2u);
  EXPECT_EQ(plan->transfers[0].slot, first);
  EXPECT_EQ(plan->transfers[0].from, 0u);
  EXPECT_EQ(plan->transfers[0].to, 1u);
  EXPECT_EQ(plan->transfers[0].size_bytes, 256u * 64 * 4);
  EXPECT_NEAR(plan->transfers[0].seconds, 256 * 64 * 4 / 1e8, 1e-9);
  EXPECT_NEAR(plan->transfers[0].remaining_seconds,
              plan->stages[1].compute_seconds, 1e-9);
  EXPECT_EQ(plan->transfers[1].slot, late.slot);
  EXPECT_LT(plan->transfers[1].remaining_seconds,
            0.1 * plan->transfers[0].remaining_seconds);
}

TEST_F(StagesTest, LaterTransfersArePartOfTheRemainingTime) {
  Layers({64, 64, 64, 64});
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(kFlops, 1e8), Worker(kFlops, 1e8), Worker(kFlops, 1e8)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->transfers.size(), 2u);
  EXPECT_EQ(plan->transfers[0].to, 1u);
  EXPECT_EQ(plan->transfers[1].to, 2u);
  EXPECT_NEAR(plan->transfers[0].remaining_seconds,
              plan->stages[1].compute_seconds + plan->transfers[1].seconds +
                  plan->transfers[1].remaining_seconds,
              1e-9);
}

TEST_F(StagesTest, APlanInForceGoesOnUnlessAnotherGainsATenth) {
  Layers(std::vector<int64_t>(25, 64));
  std::vector<StageWorker> workers = {Worker(), Worker()};
  workers[1].device = "other";
  const absl::StatusOr<StagePlan> first = Plan(workers);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->stages[0].node_count, 24u);
  const std::vector<uint32_t> in_force = WorkerOfNode(*first);
  // 13 layers to 11 would be better by only 1.5 %.
  Learn("other", 1.1);
  EXPECT_EQ(Plan(workers)->stages[0].node_count, 26u);
  const absl::StatusOr<StagePlan> kept = Plan(workers, in_force);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->stage_of_node, first->stage_of_node);
  EXPECT_EQ(kept->worker_of_slot, first->worker_of_slot);
  // The kept plan has the new times.
  EXPECT_NEAR(
      kept->stages[1].compute_seconds / first->stages[1].compute_seconds, 1.1,
      0.01);
  Learn("other", 2);
  EXPECT_EQ(Plan(workers, in_force)->stages[0].node_count, 32u);
}

TEST_F(StagesTest, ASlowerLinkEndsAPlanInForce) {
  Layers({64, 64, 64, 64});
  const absl::StatusOr<StagePlan> first = Plan({Worker(), Worker()});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->stages.size(), 2u);
  EXPECT_EQ(
      Plan({Worker(kFlops, 1e6), Worker(kFlops, 1e6)}, WorkerOfNode(*first))
          ->stages.size(),
      1u);
}

TEST_F(StagesTest, PlanInForceNeedsNoMoreRoom) {
  Layers({64, 64, 64, 64, 64});
  std::vector<StageWorker> workers = {Worker(), Worker()};
  const absl::StatusOr<StagePlan> first = Plan(workers);
  ASSERT_TRUE(first.ok()) << first.status();
  workers[1].available_bytes = 0;
  EXPECT_EQ(Plan(workers)->stages.size(), 1u);
  EXPECT_EQ(Plan(workers, WorkerOfNode(*first))->stages.size(), 2u);
}

TEST_F(StagesTest, APlanInForceThatDoesNotFitIsNone) {
  Layers({64, 64, 64, 64});
  const std::vector<StageWorker> workers = {Worker(), Worker()};
  const absl::StatusOr<StagePlan> fresh = Plan(workers);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  for (const std::vector<uint32_t>& in_force :
       {// For another graph, for absent workers, with a unit cut in two,
        // and not in the workers' order.
        std::vector<uint32_t>{0, 0, 1}, std::vector<uint32_t>{0, 0, 0, 0, 2, 2},
        std::vector<uint32_t>{0, 0, 0, 1, 1, 1},
        std::vector<uint32_t>{1, 1, 0, 0, 0, 0}}) {
    EXPECT_EQ(Plan(workers, in_force)->stage_of_node, fresh->stage_of_node);
  }
}

TEST_F(StagesTest, WithoutWeightsThereIsNothingToPlace) {
  const srg::TensorView x = builder_.Bound({4, 4});
  builder_.Call("relu", {x}, {4, 4});
  EXPECT_EQ(ErrorReason(Plan({Worker(), Worker()}).status()), "NOT_DIVISIBLE");
}

TEST_F(StagesTest, WorkersThatDoNotSayHowFastTheyAreCountAsEqual) {
  Layers({64, 64, 64, 64, 64}, 1 << 14);
  const absl::StatusOr<StagePlan> plan =
      Plan({Worker(100 * kFlops), Worker(/*flops=*/0)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Kept(*plan), (std::vector<int>{0, 0, 1, 1}));
}

}  // namespace
}  // namespace djinn::scheduler
