#include "common/srg/stage_cut.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/srg/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::srg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorView View(uint32_t slot) {
  return {.slot = slot,
          .data_type = DataType::kFloat32,
          .sizes = {4},
          .strides = {1}};
}

class StageCutTest : public ::testing::Test {
 protected:
  uint32_t Slot(Slot::Kind kind, uint64_t created_bytes = 0) {
    graph_.slots.push_back({kind, created_bytes});
    return static_cast<uint32_t>(graph_.slots.size() - 1);
  }
  uint32_t Bound() { return Slot(Slot::Kind::kBound); }

  Node& Add(const std::string& name, std::vector<Argument> arguments) {
    for (uint32_t i = 0; i < graph_.operators.size(); ++i) {
      if (graph_.operators[i].name == name) {
        return graph_.nodes.emplace_back(Node{i, std::move(arguments)});
      }
    }
    graph_.operators.push_back({name, "", 1});
    const auto last = static_cast<uint32_t>(graph_.operators.size() - 1);
    return graph_.nodes.emplace_back(Node{last, std::move(arguments)});
  }
  // A call with one result.
  uint32_t Call(const std::string& name, std::vector<Argument> arguments) {
    const uint32_t slot = Slot(Slot::Kind::kResult);
    Add(name, std::move(arguments)).results = {View(slot)};
    return slot;
  }
  void Write(const std::string& name, uint32_t slot,
             std::vector<Argument> others = {}) {
    others.insert(others.begin(), View(slot));
    Add(name, std::move(others)).writes = {slot};
  }

  Graph graph_;
};

TEST_F(StageCutTest, StagesAreGraphsOfTheirOwn) {
  graph_.float_hole_count = 2;
  graph_.scalar_tensor_hole_count = 1;
  const uint32_t x = Bound();
  const uint32_t first = Bound();
  const uint32_t h = Call("a::scale", {View(x), View(first), FloatHole{0}});
  const uint32_t second = Bound();
  const uint32_t zeros = Slot(Slot::Kind::kCreated, 16);
  const uint32_t y =
      Call("a::sum", {std::vector<TensorListEntry>{
                         View(h), View(second), View(zeros), ScalarTensor{0}}});
  const uint32_t z = Call("a::scale", {View(y), View(x), FloatHole{1}});
  ASSERT_TRUE(Validate(graph_, {}).ok());
  const std::vector<uint32_t> stages = {0, 1, 1};
  ASSERT_EQ(CheckStageOrder(graph_, stages), absl::OkStatus());

  const StageCut begin = CutStage(graph_, stages, 0);
  EXPECT_TRUE(Validate(begin.graph, {}).ok());
  EXPECT_THAT(begin.slots, ElementsAre(x, first, h));
  EXPECT_THAT(begin.float_holes, ElementsAre(0));
  EXPECT_TRUE(begin.scalar_tensor_holes.empty());
  ASSERT_EQ(begin.graph.nodes.size(), 1u);
  EXPECT_EQ(begin.graph.slots[2].kind, Slot::Kind::kResult);

  const StageCut end = CutStage(graph_, stages, 1);
  const auto facts = Validate(end.graph, {});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(end.slots, ElementsAre(x, h, second, zeros, y, z));
  EXPECT_THAT(end.float_holes, ElementsAre(1));
  EXPECT_THAT(end.scalar_tensor_holes, ElementsAre(0));
  EXPECT_EQ(end.graph.slots[1].kind, Slot::Kind::kBound);
  EXPECT_EQ(end.graph.slots[3].kind, Slot::Kind::kCreated);
  EXPECT_EQ(facts->slots[1].required_bytes, 16u);
  // The part has operators and holes of its own.
  ASSERT_EQ(end.graph.nodes.size(), 2u);
  const auto name_of = [&](const Node& node) {
    return end.graph.operators[node.operator_index].name;
  };
  EXPECT_EQ(name_of(end.graph.nodes[0]), "a::sum");
  EXPECT_EQ(name_of(end.graph.nodes[1]), "a::scale");
  EXPECT_EQ(std::get<FloatHole>(end.graph.nodes[1].arguments[2]).index, 0u);
}

TEST_F(StageCutTest, AllNodesInOneStageAreTheWhole) {
  const uint32_t x = Bound();
  Call("a::relu", {View(Call("a::scale", {View(x), View(Bound())}))});
  EXPECT_EQ(CutStage(graph_, {{0, 0}}, 0).graph.nodes.size(), 2u);
  // Slots are in the order of the whole graph.
  EXPECT_EQ(CutStage(graph_, {{0, 0}}, 0).graph, graph_);
}

TEST_F(StageCutTest, StageThatWaitsForALaterOneIsRefused) {
  const uint32_t x = Bound();
  const uint32_t h = Call("a::relu", {View(x)});
  Call("a::exp", {View(h)});
  EXPECT_EQ(CheckStageOrder(graph_, {{0, 0}}), absl::OkStatus());
  EXPECT_EQ(CheckStageOrder(graph_, {{0, 1}}), absl::OkStatus());
  const absl::Status turned = CheckStageOrder(graph_, {{1, 0}});
  EXPECT_EQ(ErrorReason(turned), "NOT_IN_STAGES");
  EXPECT_THAT(turned.message(),
              HasSubstr("node 1 (a::exp) of stage 0 comes after stage 1"));
}

TEST_F(StageCutTest, EarlierStageMustNotWriteALaterReadersSlot) {
  const uint32_t x = Bound();
  const uint32_t h = Call("a::relu", {View(x)});
  Call("a::exp", {View(h)});
  Write("a::add_", h);
  // Stage 0 would have written it before stage 1 reads.
  EXPECT_EQ(ErrorReason(CheckStageOrder(graph_, {{0, 1, 0}})), "NOT_IN_STAGES");
  EXPECT_EQ(CheckStageOrder(graph_, {{0, 0, 1}}), absl::OkStatus());
  EXPECT_EQ(CheckStageOrder(graph_, {{0, 1, 1}}), absl::OkStatus());
  // Two stages may read the same slot in any order.
  Call("a::exp", {View(x)});
  EXPECT_EQ(CheckStageOrder(graph_, {{0, 1, 1, 0}}), absl::OkStatus());
}

TEST_F(StageCutTest, SlotWrittenInALaterStageIsBoundThere) {
  const uint32_t x = Bound();
  const uint32_t h = Call("a::relu", {View(x)});
  Write("a::add_", h, {View(Bound())});
  const StageCut end = CutStage(graph_, {{0, 1}}, 1);
  const auto facts = Validate(end.graph, {});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(end.graph.slots[0].kind, Slot::Kind::kBound);
  EXPECT_EQ(facts->slots[0].writes, 1u);
  EXPECT_TRUE(facts->slots[0].reads);
}

}  // namespace
}  // namespace djinn::srg
