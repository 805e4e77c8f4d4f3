// Tests patterns that need only a few calls each; attention, caches and
// embeddings have test files of their own.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

using Entries = std::vector<srg::TensorListEntry>;
using Integers = std::vector<int64_t>;

TEST(NormTest, WholeAndAsRootMeanSquare) {
  Builder b;
  const Shape rows = {2, 5, 16}, one = {2, 5, 1};
  const auto x = b.Bound(rows);
  b.Call("layer_norm", {x, Integers{16}, b.Bound({16})}, rows);
  const auto squares = b.Call("pow", {x, int64_t{2}}, rows);
  const auto mean = b.Call("mean", {squares, Integers{-1}, true}, one);
  const auto sum = b.Call("add", {mean, srg::FloatHole{0}}, one);
  const auto scale = b.Call("rsqrt", {sum}, one);
  const auto scaled = b.Call("mul", {x, scale}, rows);
  b.Call("mul", {b.Bound({16}), scaled}, rows);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("norm.whole", "norm.statistics", "norm.statistics",
                          "norm.statistics", "norm.scale", "norm.products",
                          "norm.products"));
}

TEST(NormTest, EitherHalf) {
  Builder begin;
  const auto squares =
      begin.Call("pow", {begin.Bound({2, 5, 16}), int64_t{2}}, {2, 5, 16});
  begin.Call("mean", {squares, Integers{-1}, true}, {2, 5, 1});
  EXPECT_THAT(Found(begin).roles(), Each("norm.statistics"));

  Builder end;
  const auto scaled = end.Call(
      "mul", {end.Bound({2, 5, 16}), end.Bound({2, 5, 1})}, {2, 5, 16});
  end.Call("mul", {end.Bound({16}), scaled}, {2, 5, 16});
  EXPECT_THAT(Found(end).roles(), Each("norm.products"));
}

TEST(NormTest, AWeightThatHasOneAdded) {
  Builder b;
  const Shape rows = {2, 5, 16}, one = {2, 5, 1};
  const auto x = b.Bound(rows);
  const auto squares = b.Call("pow", {x, int64_t{2}}, rows);
  const auto mean = b.Call("mean", {squares, Integers{-1}, true}, one);
  const auto scale = b.Call("rsqrt", {mean}, one);
  const auto scaled = b.Call("mul", {x, scale}, rows);
  const auto raised = b.Call("add", {b.Bound({16}), srg::FloatHole{0}}, {16});
  b.Call("mul", {scaled, raised}, rows);
  const auto other = b.Call("add", {b.Bound({16}), srg::FloatHole{1}}, {16});
  b.Call("layer_norm", {x, Integers{16}, other}, rows);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("norm.statistics", "norm.statistics", "norm.scale",
                          "norm.products", "norm.products", "norm.products",
                          "norm.products", "norm.whole"));
}

// The norm is a product with the reciprocal of a root, or a quotient.
TEST(NormTest, NormWithoutItsMeanIsFound) {
  for (const bool divides : {false, true}) {
    Builder b;
    const Shape rows = {2, 5, 16}, one = {2, 5, 1};
    const auto x = b.Bound(rows);
    const auto mean = b.Call("mean", {x, Integers{-1}, true}, one);
    const auto centred = b.Call("sub", {x, mean}, rows);
    const auto squares = b.Call("pow", {centred, int64_t{2}}, rows);
    const auto variance = b.Call("mean", {squares, Integers{-1}, true}, one);
    const auto again = b.Call("sub", {x, mean}, rows);
    const auto sum = b.Call("add", {variance, srg::FloatHole{0}}, one);
    const auto root = b.Call(divides ? "sqrt" : "rsqrt", {sum}, one);
    const auto scaled = b.Call(divides ? "div" : "mul", {again, root}, rows);
    const auto weighed = b.Call("mul", {b.Bound({16}), scaled}, rows);
    b.Call("add", {weighed, b.Bound({16})}, rows);
    EXPECT_THAT(Found(b).roles(),
                ElementsAre("norm.statistics", "norm.statistics",
                            "norm.statistics", "norm.statistics",
                            "norm.statistics", "norm.statistics", "norm.scale",
                            "norm.products", "norm.products", "norm.products"));
  }

  // The root of a row of anything else is no norm.
  Builder plain;
  const auto root = plain.Call("sqrt", {plain.Bound({2, 5, 1})}, {2, 5, 1});
  plain.Call("div", {plain.Bound({2, 5, 16}), root}, {2, 5, 16});
  EXPECT_THAT(Found(plain).roles(), Each(""));
}

TEST(MlpTest, ScoresThatAreCappedAreNone) {
  Builder b;
  const auto scores = b.Linear(b.Bound({2, 5, 16}), 96);
  const auto share = b.Call("div", {scores, srg::FloatHole{0}}, {2, 5, 96});
  const auto bent = b.Call("tanh", {share}, {2, 5, 96});
  b.Call("mul", {bent, srg::FloatHole{0}}, {2, 5, 96});
  EXPECT_THAT(Found(b).roles(), Each(""));
}

TEST(MlpTest, GatedAndPlain) {
  Builder b;
  const auto x = b.Bound({2, 5, 16});
  const auto up = b.Linear(x, 64);
  const auto active = b.Call("silu", {up}, {2, 5, 64});
  const auto gate = b.Linear(x, 64);
  const auto both = b.Call("mul", {active, gate}, {2, 5, 64});
  b.Linear(both, 16);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("mlp.up", "mlp.activation", "mlp.gate",
                          "mlp.activation", "mlp.down"));
}

TEST(MlpTest, ProjectionsSplitIntoACopyAndAProduct) {
  Builder b;
  const auto split = [&](const srg::TensorView& x, int64_t in, int64_t out) {
    const auto copy = b.Call("clone", {x, int64_t{0}}, {2, 5, in});
    return b.Call(
        "mm",
        {Builder::As(copy, {10, in}), Builder::Transposed(b.Bound({out, in}))},
        {10, out});
  };
  const auto up = split(b.Bound({2, 5, 16}), 16, 64);
  const auto active = b.Call("gelu", {Builder::As(up, {2, 5, 64})}, {2, 5, 64});
  split(active, 64, 16);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("mlp.up", "mlp.up", "mlp.activation",
                          "mlp.activation", "mlp.down"));

  // A copy that another node reads, too, belongs to no product.
  Builder other;
  const auto copy =
      other.Call("clone", {other.Bound({2, 5, 16}), int64_t{0}}, {2, 5, 16});
  const auto wide = other.Call(
      "mm",
      {Builder::As(copy, {10, 16}), Builder::Transposed(other.Bound({64, 16}))},
      {10, 64});
  other.Call("gelu", {wide}, {10, 64});
  other.Call("sum", {copy, std::monostate()}, {});
  EXPECT_THAT(Found(other).roles(),
              ElementsAre("", "mlp.up", "mlp.activation", ""));
}

TEST(MlpTest, TheLastProjectionOfOneInThePieceBefore) {
  const Shape rows = {2, 5, 16};
  Builder b;
  const auto down = b.Linear(b.Bound({2, 5, 64}), 16);
  b.Call("add", {b.Bound(rows), down}, rows);
  EXPECT_THAT(Found(b).roles(), ElementsAre("mlp.down", ""));

  Builder drops;
  const auto y = drops.Linear(drops.Bound({2, 5, 64}), 16);
  const auto dropped = drops.Draw("dropout", {y, 0.1, true}, rows);
  drops.Call("add", {drops.Bound(rows), dropped}, rows);
  EXPECT_THAT(Found(drops).roles(), ElementsAre("mlp.down", "mlp.dropout", ""));

  // The projection widens, or only a bias is added.
  Builder other;
  const auto wide = other.Linear(other.Bound(rows), 64);
  other.Call("add", {other.Bound({2, 5, 64}), wide}, {2, 5, 64});
  const auto scores = other.Linear(other.Bound({2, 5, 64}), 16);
  other.Call("add", {scores, other.Bound({16})}, rows);
  EXPECT_THAT(Found(other).roles(), Each(""));
}

TEST(MlpTest, APoolerIsNone) {
  Builder b;
  const auto y = b.Linear(b.Bound({2, 16}), 16);
  b.Call("tanh", {y}, {2, 16});
  EXPECT_THAT(Found(b).roles(), Each(""));
}

TEST(MoeTest, RouterAndExpert) {
  Builder b;
  const auto x = b.Bound({10, 16});
  const auto scores = b.Linear(x, 4);
  const auto shares =
      b.Call("softmax", {scores, int64_t{-1}, std::monostate()}, {10, 4});
  b.Call("topk", {shares, int64_t{2}}, {10, 2});
  const auto rows = b.Call("index", {x, Entries{b.Integers({3})}}, {3, 16});
  const auto up = b.Linear(rows, 64);
  const auto active = b.Call("silu", {up}, {3, 64});
  const auto down = b.Linear(active, 16);
  b.Write("index_add_", {b.Bound({10, 16}), int64_t{0}, b.Integers({3}), down});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("moe.router", "moe.router", "moe.router", "moe.expert",
                  "moe.expert", "moe.expert", "moe.expert", "moe.combine"));
}

TEST(MoeTest, ZerosThatResultsAreAddedUpIn) {
  Builder b;
  const auto x = b.Bound({10, 16});
  const auto shares = b.Call(
      "softmax", {b.Linear(x, 4), int64_t{-1}, std::monostate()}, {10, 4});
  b.Call("topk", {shares, int64_t{2}}, {10, 2});
  b.Call("zeros_like", {x}, {10, 16});
  b.Call("zeros_like", {b.Bound({10, 16})}, {10, 16});
  EXPECT_THAT(Found(b).roles(), ElementsAre("moe.router", "moe.router",
                                            "moe.router", "moe.combine", ""));
}

TEST(MoeTest, AChoiceOfRowsNeedsExperts) {
  constexpr srg::DataType kInt = srg::DataType::kInt64;
  const auto choose = [](Builder* b) {
    const auto marks = b->Call("zeros", {Integers{10, 4}}, {10, 4}, kInt);
    b->Write("scatter_", {marks, int64_t{1}, b->Integers({10, 2}), int64_t{1}});
    const auto counts = b->Call("sum", {marks, Integers{0}}, {4}, kInt);
    const auto chosen =
        b->Call("gt", {counts, int64_t{0}}, {4}, srg::DataType::kBool);
    b->Call("nonzero", {chosen}, {3, 1}, kInt);
  };
  Builder alone;
  choose(&alone);
  EXPECT_THAT(Found(alone).roles(), Each(""));

  Builder routed;
  const auto shares = routed.Call(
      "softmax", {routed.Bound({10, 4}), int64_t{-1}, std::monostate()},
      {10, 4});
  routed.Call("topk", {shares, int64_t{2}}, {10, 2});
  choose(&routed);
  EXPECT_THAT(
      Found(routed).roles(),
      ElementsAre("moe.router", "moe.router", "moe.dispatch", "moe.dispatch",
                  "moe.dispatch", "moe.dispatch", "moe.dispatch"));
}

TEST(ConvolutionTest, AStage) {
  Builder b;
  const auto y =
      b.Convolve(b.Bound({2, 16, 8, 8}), {32, 16, 3, 3}, 1, {2, 32, 6, 6});
  const auto normal =
      b.Call("batch_norm", {y, b.Bound({32}), b.Bound({32})}, {2, 32, 6, 6});
  const auto active = b.Call("relu", {normal}, {2, 32, 6, 6});
  b.Call("mean", {active, Integers{-1, -2}, true}, {2, 32, 1, 1});
  EXPECT_THAT(Found(b).roles(), ElementsAre("conv.product", "conv.norm",
                                            "conv.activation", "conv.pooling"));
}

TEST(ConvolutionTest, OverOneDimension) {
  Builder b;
  const auto y = b.Call("conv1d", {b.Bound({2, 16, 40}), b.Bound({32, 16, 3})},
                        {2, 32, 38});
  b.Call("gelu", {y}, {2, 32, 38});
  // The positions of the result as rows.
  b.Call("gelu", {Builder::As(y, {2, 38, 32})}, {2, 38, 32});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("conv.product", "conv.activation", ""));
}

TEST(ConvolutionTest, ThePaddingBefore) {
  Builder b;
  const auto image = b.Bound({2, 16, 8, 8});
  const auto padded = b.Call("constant_pad_nd",
                             {image, Integers{0, 1, 0, 1}, 0.0}, {2, 16, 9, 9});
  b.Call("conv2d", {padded, b.Bound({32, 16, 3, 3})}, {2, 32, 7, 7});
  EXPECT_THAT(Found(b).roles(), ElementsAre("conv.padding", "conv.product"));
}

TEST(ConvolutionTest, ThePaddingBeforeTheNextPiece) {
  Builder b;
  b.Call("constant_pad_nd", {b.Bound({2, 16, 8, 8}), Integers{0, 1, 0, 1}, 0.0},
         {2, 16, 9, 9});
  // No convolution reads the padded image here.
  const auto padded = b.Call(
      "constant_pad_nd", {b.Bound({2, 16, 8, 8}), Integers{0, 1, 0, 1}, 0.0},
      {2, 16, 9, 9});
  b.Call("neg", {padded}, {2, 16, 9, 9});
  EXPECT_THAT(Found(b).roles(), ElementsAre("conv.padding", "", ""));
}

TEST(RecurrentTest, WholeAndAsGates) {
  Builder b;
  const auto state = b.Call("zeros", {Integers{1, 2, 8}}, {1, 2, 8});
  b.Call("lstm",
         {b.Bound({2, 5, 4}), Entries{state, state},
          Entries{b.Bound({32, 4}), b.Bound({32, 8})}},
         {2, 5, 8});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("recurrent.state", "recurrent.whole"));

  Builder gates;
  auto sum = gates.Linear(gates.Bound({2, 8}), 32);
  auto part = Builder::As(sum, {2, 8});
  gates.Write("sigmoid_", {part});
  part.storage_offset = 8;
  gates.Write("tanh_", {part});
  gates.Call("mul", {part, gates.Bound({2, 8})}, {2, 8});
  EXPECT_THAT(Found(gates).roles(), Each(StartsWith("recurrent.")));
}

TEST(RecurrentTest, PieceOfARecurrentCellIsFound) {
  // States that begin as zeros, reordered rows, and one gate.
  Builder b;
  const auto state = b.Call("zeros", {Integers{2, 8}}, {2, 8});
  const auto turned = b.Call("clone", {b.Bound({9, 2, 8})}, {9, 2, 8});
  const auto product = b.Linear(turned, 32);
  const auto old = b.Linear(state, 32);
  const auto sum = b.Call("add", {Builder::As(product, {2, 32}), old}, {2, 32});
  auto part = Builder::As(sum, {2, 8});
  part.strides[0] = 32;
  b.Write("sigmoid_", {part});
  EXPECT_THAT(Found(b).roles(), Each(StartsWith("recurrent.")));

  // An activation by itself is no gate.
  Builder plain;
  plain.Write("sigmoid_", {plain.Linear(plain.Bound({2, 8}), 8)});
  EXPECT_THAT(Found(plain).roles(), Each(""));
}

TEST(FusionTest, RowsPutAmongTokens) {
  Builder b;
  const auto image = b.Linear(b.Bound({4, 24}), 16);
  b.Call(
      "masked_scatter",
      {b.Bound({1, 9, 16}), b.Bound({1, 9, 16}, srg::DataType::kBool), image},
      {1, 9, 16});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("fusion.projection", "fusion.join"));
}

TEST(FusionTest, NeighboursPutTogetherBeforeTheirProjection) {
  Builder b;
  const auto windows = b.Call("im2col", {b.Bound({1, 24, 4, 4})}, {1, 96, 4});
  const auto up = b.Linear(Builder::As(windows, {4, 96}), 16);
  const auto rows = b.Linear(b.Call("gelu", {up}, {4, 16}), 16);
  // The move and the normalization behind the projection belong to the fusion.
  const auto moved = b.Call("clone", {rows}, {4, 16});
  const auto norm = b.Call("layer_norm", {moved, Integers{16}}, {4, 16});
  b.Call("masked_scatter",
         {b.Bound({1, 9, 16}), b.Bound({1, 9, 16}, srg::DataType::kBool), norm},
         {1, 9, 16});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("fusion.projection", "fusion.projection", "fusion.projection",
                  "fusion.projection", "", "norm.whole", "fusion.join"));
}

TEST(FusionTest, FeaturesWithEachOther) {
  Builder b;
  const auto x = b.Bound({8, 7, 16});
  const auto products =
      b.Call("bmm", {x, Builder::As(x, {8, 16, 7})}, {8, 7, 7});
  b.Call("index", {products, Entries{b.Integers({21}), b.Integers({21})}},
         {8, 21});
  EXPECT_THAT(Found(b).roles(), Each("fusion.interaction"));
}

TEST(LossTest, WithWhatPreparesIt) {
  Builder b;
  const auto scores =
      b.Call("_log_softmax", {b.Bound({4, 10}), int64_t{1}, false}, {4, 10});
  b.Call("nll_loss_forward", {scores, b.Integers({4})}, {});
  EXPECT_THAT(Found(b).roles(), ElementsAre("loss.prepare", "loss.value"));
}

TEST(LossTest, APieceThatEndsBeforeIt) {
  constexpr srg::DataType kInt = srg::DataType::kInt64;
  Builder b;
  const auto range = b.Call("arange", {int64_t{4}}, {4}, kInt);
  b.Call("remainder", {range, int64_t{10}}, {4}, kInt);
  b.Call("arange", {int64_t{7}}, {7}, kInt);
  b.Call("_log_softmax", {b.Bound({4, 10}), int64_t{1}, false}, {4, 10});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("loss.prepare", "loss.prepare", "", "loss.prepare"));
}

TEST(BackwardTest, FromTheFirstGradientOn) {
  Builder b;
  const auto x = b.Bound({10, 16});
  const auto weight = b.Bound({8, 16});
  const auto y = b.Call("mm", {x, Builder::Transposed(weight)}, {10, 8});
  const auto active = b.Call("relu", {y}, {10, 8});
  const auto gradient = b.Call("threshold_backward",
                               {b.Bound({10, 8}), active, int64_t{0}}, {10, 8});
  b.Call("mm", {Builder::Transposed(gradient), x}, {8, 16});
  b.Call("mm", {gradient, weight}, {10, 16});
  b.Call("sum", {gradient, Integers{0}}, {8});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("mlp.up", "mlp.activation", "backward.activation",
                          "backward.weight", "backward.activation",
                          "backward.activation"));
}

TEST(OptimizerTest, StepsAndState) {
  Builder b;
  std::vector<srg::TensorListEntry> weights, gradients;
  for (int i = 0; i < 2; ++i) weights.push_back(b.Bound({8, 16}));
  for (int i = 0; i < 2; ++i) {
    gradients.push_back(
        b.Call("clone", {b.Bound({8, 16}), std::monostate()}, {8, 16}));
  }
  b.Call("_foreach_sqrt", {gradients}, {8, 16});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("optimizer.state", "optimizer.state", "optimizer.step"));

  Builder plain;
  plain.Linear(plain.Bound({2, 16}), 8);
  EXPECT_THAT(Found(plain).roles(), Each(""));
}

TEST(PatternsTest, AllHaveNames) {
  std::vector<std::string> names;
  for (const Pattern* const pattern : AllPatterns()) {
    EXPECT_THAT(names, ::testing::Not(Contains(pattern->name())));
    names.emplace_back(pattern->name());
  }
}

}  // namespace
}  // namespace djinn::semantics
