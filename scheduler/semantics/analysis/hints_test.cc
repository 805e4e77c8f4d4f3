#include "scheduler/semantics/analysis/hints.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/analysis.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

using Integers = std::vector<int64_t>;

std::vector<Phase> Phases(const Meaning& meaning) {
  std::vector<Phase> phases;
  for (const NodeMeaning& node : meaning.nodes) phases.push_back(node.phase);
  return phases;
}

Meaning WithHints(const Builder& builder, const std::vector<Hint>& hints) {
  Meaning meaning = Analyze(builder.graph());
  ApplyHints(builder.graph(), hints, &meaning);
  return meaning;
}

std::vector<Hint> ForEach(const Builder& builder, Phase phase) {
  return std::vector<Hint>(builder.graph().nodes.size(), {phase, ""});
}

// Builds a graph whose phase is unknown.
Builder Rows() {
  Builder b;
  b.Linear(b.Bound({2, 5, 16}), 16);
  return b;
}

// Builds a convolution, and a mask of it whose consumer explains it.
Builder MaskedImage() {
  Builder b;
  const auto mask =
      b.Call("gt", {b.Integers({8}), int64_t{0}}, {8}, srg::DataType::kBool);
  const auto y =
      b.Call("conv2d",
             {b.Bound({1, 3, 8, 8}), b.Bound({4, 3, 1, 1}), std::monostate()},
             {1, 4, 8, 8});
  b.Call("masked_fill", {y, mask, int64_t{0}}, {1, 4, 8, 8});
  return b;
}

TEST(HintsTest, DecideWhatNothingShows) {
  const Meaning plain = Analyze(Rows().graph());
  EXPECT_EQ(plain.phase, Phase::kUnspecified);
  const Meaning meaning =
      WithHints(Rows(), ForEach(Rows(), Phase::kLlmPrefill));
  EXPECT_EQ(meaning.phase, Phase::kLlmPrefill);
  EXPECT_EQ(meaning.task_type, TaskType::kGeneration);
  ASSERT_EQ(meaning.stages.size(), 1u);
  EXPECT_EQ(meaning.stages[0].phase, Phase::kLlmPrefill);
}

TEST(HintsTest, AreNeverNeeded) {
  for (const Builder& builder : {Rows(), MaskedImage()}) {
    const Meaning plain = Analyze(builder.graph());
    const Meaning meaning =
        WithHints(builder, ForEach(builder, Phase::kUnspecified));
    EXPECT_THAT(Phases(meaning), ElementsAreArray(Phases(plain)));
    EXPECT_EQ(meaning.phase, plain.phase);
    EXPECT_EQ(meaning.task_type, plain.task_type);
    EXPECT_EQ(meaning.stages.size(), plain.stages.size());
  }
}

TEST(HintsTest, DecideWhatNeighboursSuggest) {
  const Meaning plain = Analyze(MaskedImage().graph());
  EXPECT_THAT(Phases(plain), Each(Phase::kVisionEncoding));
  const Meaning meaning =
      WithHints(MaskedImage(), ForEach(MaskedImage(), Phase::kForward));
  EXPECT_THAT(Phases(meaning),
              ElementsAre(Phase::kForward, Phase::kVisionEncoding,
                          Phase::kVisionEncoding));
}

// Returns graphs of every kind of phase that a graph shows by itself.
std::vector<Builder> CertainGraphs() {
  std::vector<Builder> all;
  Builder image;
  image.Call(
      "conv2d",
      {image.Bound({1, 3, 8, 8}), image.Bound({4, 3, 1, 1}), std::monostate()},
      {1, 4, 8, 8});
  all.push_back(image);
  Builder decode;
  decode.Call("embedding", {decode.Bound({96, 64}), decode.Integers({1, 1})},
              {1, 1, 64});
  all.push_back(decode);
  Builder cell;
  cell.Call("lstm",
            {cell.Bound({2, 5, 4}),
             std::vector<srg::TensorListEntry>{cell.Bound({32, 4})}},
            {2, 5, 8});
  all.push_back(cell);
  Builder large;
  const auto wide =
      large.Call("relu", {large.Bound({1, 8, 4, 4})}, {1, 8, 4, 4});
  large.Call("upsample_nearest2d", {wide, Integers{8, 8}}, {1, 8, 8, 8});
  all.push_back(large);
  Builder loss;
  loss.Call("mse_loss", {loss.Bound({4, 2}), loss.Bound({4, 2})}, {});
  all.push_back(loss);
  Builder join;
  join.Call(
      "masked_scatter",
      {join.Bound({1, 7, 64}), join.Bound({1, 7, 64}, srg::DataType::kBool),
       join.Bound({1, 16, 64})},
      {1, 7, 64});
  all.push_back(join);
  return all;
}

TEST(HintsTest, WrongOnesMakeNothingCertainWrong) {
  for (const Builder& builder : CertainGraphs()) {
    const Meaning plain = Analyze(builder.graph());
    EXPECT_NE(plain.phase, Phase::kUnspecified);
    for (int phase = 0; phase < kPhaseCount; ++phase) {
      const Meaning meaning =
          WithHints(builder, ForEach(builder, static_cast<Phase>(phase)));
      EXPECT_THAT(Phases(meaning), ElementsAreArray(Phases(plain)));
      EXPECT_EQ(meaning.phase, plain.phase);
    }
  }
}

TEST(HintsTest, ThatTheModalityRulesOutAreLeftAside) {
  Builder text;
  text.Call("embedding", {text.Bound({96, 64}), text.Integers({1, 7})},
            {1, 7, 64});
  EXPECT_EQ(WithHints(text, ForEach(text, Phase::kVisionEncoding)).phase,
            Phase::kUnspecified);
  EXPECT_EQ(WithHints(text, ForEach(text, Phase::kForward)).phase,
            Phase::kForward);
  // The scope is also around an image's encoder.
  Builder mask = MaskedImage();
  EXPECT_THAT(Phases(WithHints(mask, ForEach(mask, Phase::kLlmPrefill))),
              Each(Phase::kVisionEncoding));
}

TEST(HintsTest, AModulesNodesAreOfOnePhase) {
  Builder b;
  b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 1})}, {1, 1, 64});
  b.Call("conv2d",
         {b.Bound({1, 3, 8, 8}), b.Bound({4, 3, 1, 1}), std::monostate()},
         {1, 4, 8, 8});
  b.Call("relu", {b.Bound({7})}, {7});
  std::vector<Hint> hints = {{Phase::kUnspecified, "Net.text"},
                             {Phase::kUnspecified, "Net.image"},
                             {Phase::kUnspecified, "Net.image"}};
  const Meaning plain = Analyze(b.graph());
  // The only language model decides first.
  EXPECT_EQ(plain.nodes[2].phase, Phase::kLlmDecode);
  Builder still;
  still.Call(
      "conv2d",
      {still.Bound({1, 3, 8, 8}), still.Bound({4, 3, 1, 1}), std::monostate()},
      {1, 4, 8, 8});
  still.Call("lstm",
             {still.Bound({2, 5, 4}),
              std::vector<srg::TensorListEntry>{still.Bound({32, 4})}},
             {2, 5, 8});
  still.Call("relu", {still.Bound({7})}, {7});
  hints[0].module_path = "Net.image";
  hints[1].module_path = "Net.cell";
  EXPECT_EQ(Analyze(still.graph()).nodes[2].phase, Phase::kUnspecified);
  EXPECT_EQ(WithHints(still, hints).nodes[2].phase, Phase::kVisionEncoding);
  // A module that shows two phases decides nothing.
  hints[1].module_path = "Net.image";
  EXPECT_EQ(WithHints(still, hints).nodes[2].phase, Phase::kUnspecified);
  // A hinted phase precedes that of the module.
  hints[2].phase = Phase::kForward;
  EXPECT_EQ(WithHints(still, hints).nodes[2].phase, Phase::kForward);
}

}  // namespace
}  // namespace djinn::semantics
