#include "gpu_worker/session/state/graph_table.h"

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/store/device_memory.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class GraphTableTest : public testing::Test {
 protected:
  GraphTableTest() {
    environment_.clock = &clock_;
    environment_.memory = &memory_;
    environment_.graphs = &graphs_;
  }

  // Defines x += y, of `count` elements.
  static v1::DefineGraph Define(uint64_t id, int64_t count = 4) {
    FakeGraph s;
    const uint32_t x = s.Bound();
    s.AddInPlace(x, s.Bound(), count);
    v1::DefineGraph define;
    define.set_graph_id(id);
    *define.mutable_graph() = srg::ToProto(s.get());
    return define;
  }
  static v1::DefineGraph DefineRefused(uint64_t id) {
    FakeGraph s;
    s.Unary("fake::refused", s.Bound(), 4);
    v1::DefineGraph define;
    define.set_graph_id(id);
    *define.mutable_graph() = srg::ToProto(s.get());
    return define;
  }
  GraphTable::Graph* MustDefine(uint64_t id, int64_t count = 4) {
    const auto defined = table_.Define(Define(id, count));
    EXPECT_TRUE(defined.ok() && defined->admitted.ok());
    return defined->graph;
  }
  // Evicts all plans by filling the cache with another session's plans.
  void FillCache() {
    GraphTable other(&environment_, "red", kPlans);
    for (uint64_t id = 1; id <= kPlans; ++id) {
      EXPECT_TRUE(other.Define(Define(id, 100 + id)).ok());
    }
  }
  // Returns a bound run as BindRun() makes it.
  static BoundRun Bound(const v1::Run& message, size_t slots) {
    BoundRun run;
    run.message = &message;
    run.bindings.resize(slots);
    for (size_t i = 0; i < slots; ++i) run.bindings[i].storage = 10 + i;
    return run;
  }
  static bool Violates(const absl::Status& status) {
    return ErrorReason(status) == "PROTOCOL_VIOLATION";
  }

  static constexpr size_t kPlans = 3;
  FakeClock clock_;
  FakeDevice device_{1 << 20};
  Ledger ledger_{1 << 20};
  DeviceMemory memory_{&device_, &ledger_};
  GraphCache graphs_{{.max_plans = kPlans}};
  SessionEnvironment environment_;
  GraphTable table_{&environment_, "red", 2};
};

TEST_F(GraphTableTest, AnIdNamesOneGraphForGood) {
  EXPECT_TRUE(Violates(table_.Define(Define(0)).status()));
  MustDefine(7);
  EXPECT_NE(table_.Find(7), nullptr);
  EXPECT_EQ(table_.Find(8), nullptr);
  EXPECT_TRUE(Violates(table_.Define(Define(7)).status()));
  EXPECT_TRUE(table_.Forget(7).ok());
  EXPECT_EQ(table_.Find(7), nullptr);
  EXPECT_TRUE(Violates(table_.Forget(7)));
  EXPECT_TRUE(Violates(table_.Define(Define(7)).status()));
}

TEST_F(GraphTableTest, ForgottenGraphMakesRoom) {
  MustDefine(1);
  MustDefine(2, 5);
  const absl::Status one_more = table_.Define(Define(3)).status();
  EXPECT_TRUE(Violates(one_more));
  EXPECT_EQ(one_more.message(), "more than 2 graphs defined");
  EXPECT_TRUE(table_.Forget(1).ok());
  MustDefine(3);
  EXPECT_EQ(table_.size(), 2u);
}

TEST_F(GraphTableTest, OneThatIsRefusedIsDefinedNevertheless) {
  const auto defined = table_.Define(DefineRefused(1));
  ASSERT_TRUE(defined.ok());
  EXPECT_FALSE(defined->admitted.ok());
  EXPECT_EQ(table_.Find(1), defined->graph);
  EXPECT_EQ(defined->graph->fingerprint, "");
}

TEST_F(GraphTableTest, APlanThatIsGoneIsSuppliedForTheRunThatWaits) {
  const GraphTable::Graph* const graph = MustDefine(1);
  v1::Run run;
  run.set_graph_id(1);
  EXPECT_NE(*table_.PlanOf(*graph, run), nullptr);
  FillCache();
  EXPECT_EQ(*table_.PlanOf(*graph, run), nullptr);
  EXPECT_TRUE(table_.Supply(Define(1)).ok());
  EXPECT_TRUE(table_.supplied());
  // Graphs that other sessions define meanwhile do not evict it.
  FillCache();
  EXPECT_NE(*table_.PlanOf(*graph, run), nullptr);
  table_.ForgetSupplied();
  EXPECT_EQ(*table_.PlanOf(*graph, run), nullptr);
}

TEST_F(GraphTableTest, NoOtherGraphCanBeSupplied) {
  MustDefine(1);
  const absl::Status other = table_.Supply(Define(1, 5));
  EXPECT_TRUE(Violates(other));
  EXPECT_EQ(other.message(), "supplies another graph than 1 was");
  EXPECT_TRUE(Violates(table_.Supply(DefineRefused(1))));
  EXPECT_FALSE(table_.supplied());
}

TEST_F(GraphTableTest, OnlyOneWithAHoleHasASize) {
  const GraphTable::Graph* const graph = MustDefine(1);
  v1::Run run;
  run.set_graph_id(1);
  run.set_size(9);
  const absl::Status refused = table_.PlanOf(*graph, run).status();
  EXPECT_TRUE(Violates(refused));
  EXPECT_EQ(refused.message(), "run: graph 1 has no size, but the run says 9");
}

TEST_F(GraphTableTest, ARunIsRememberedUntilOneInFullIsNot) {
  GraphTable::Graph* const graph = MustDefine(1);
  v1::Run message;
  const std::shared_ptr<const Plan> plan = *table_.PlanOf(*graph, message);
  message.set_remember(true);
  ASSERT_TRUE(table_.Remember(*plan, Bound(message, 2), graph).ok());
  ASSERT_EQ(graph->remembered.size(), 1u);
  EXPECT_EQ(graph->remembered[0].storages, (std::vector<uint64_t>{10, 11}));
  // A repeat is remembered in a place of its own.
  message.mutable_repeat()->set_place(0);
  ASSERT_TRUE(table_.Remember(*plan, Bound(message, 2), graph).ok());
  EXPECT_EQ(graph->remembered.size(), 2u);
  const v1::Run in_full;
  ASSERT_TRUE(table_.Remember(*plan, Bound(in_full, 2), graph).ok());
  EXPECT_TRUE(graph->remembered.empty());
}

TEST_F(GraphTableTest, SoManyRunsAreRememberedAtMost) {
  GraphTable::Graph* const graph = MustDefine(1);
  v1::Run message;
  const std::shared_ptr<const Plan> plan = *table_.PlanOf(*graph, message);
  message.set_remember(true);
  for (size_t i = 0; i < srg::kMaxRememberedRuns; ++i) {
    ASSERT_TRUE(table_.Remember(*plan, Bound(message, 2), graph).ok());
    message.mutable_repeat()->set_place(0);
  }
  EXPECT_TRUE(
      Violates(table_.Remember(*plan, Bound(message, 2), graph).status()));
}

TEST_F(GraphTableTest, SlotsOfAllGraphsCountUntilTheyAreForgotten) {
  GraphTable::Graph* const graph = MustDefine(1);
  v1::Run message;
  const std::shared_ptr<const Plan> plan = *table_.PlanOf(*graph, message);
  message.set_remember(true);
  const BoundRun most = Bound(message, srg::kMaxRememberedSlots);
  ASSERT_TRUE(table_.Remember(*plan, most, graph).ok());
  // A run in full replaces the remembered runs.
  ASSERT_TRUE(table_.Remember(*plan, most, graph).ok());
  EXPECT_TRUE(table_.Forget(1).ok());
  GraphTable::Graph* const other = MustDefine(2);
  ASSERT_TRUE(table_.Remember(*plan, most, other).ok());
  EXPECT_TRUE(Violates(
      table_.Remember(*plan, Bound(message, 1), MustDefine(3, 5)).status()));
}

}  // namespace
}  // namespace djinn::worker
