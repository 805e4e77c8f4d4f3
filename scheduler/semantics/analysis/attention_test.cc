#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Not;

using Entries = std::vector<srg::TensorListEntry>;
using Integers = std::vector<int64_t>;

constexpr int64_t kTokens = 5, kWidth = 16, kHeads = 4, kSize = 4;

Shape Heads(int64_t tokens, int64_t heads = kHeads) {
  return {2, heads, tokens, kSize};
}

TEST(AttentionTest, FusedWithProjections) {
  Builder b;
  const auto x = b.Bound({2, kTokens, kWidth});
  const auto q = b.Linear(x, kWidth), k = b.Linear(x, kWidth),
             v = b.Linear(x, kWidth);
  const auto y =
      b.Call("scaled_dot_product_attention",
             {Builder::As(q, Heads(kTokens)), Builder::As(k, Heads(kTokens)),
              Builder::As(v, Heads(kTokens)), std::monostate(),
              srg::FloatHole{0}, true},
             Heads(kTokens));
  b.Linear(Builder::As(y, {2, kTokens, kWidth}), kWidth);
  const Found found(b);
  EXPECT_THAT(found.roles(),
              ElementsAre("attention.projection", "attention.projection",
                          "attention.projection", "attention.fused",
                          "attention.output"));
  EXPECT_THAT(found.traits(3), ElementsAre("fused", "causal"));
}

TEST(AttentionTest, ProjectionsSplitIntoACopyAndAProduct) {
  const Shape rows = {2, kTokens, kWidth}, matrix = {2 * kTokens, kWidth};
  Builder b;
  const auto x = b.Call("layer_norm", {b.Bound(rows)}, rows);
  const auto project = [&] {
    // The rows do not form a matrix in memory.
    const auto copy = b.Call("clone", {x, int64_t{0}}, rows);
    return b.Call("mm",
                  {Builder::As(copy, matrix),
                   Builder::Transposed(b.Bound({kWidth, kWidth}))},
                  matrix);
  };
  const auto q = project(), k = project(), v = project();
  const auto y =
      b.Call("scaled_dot_product_attention",
             {Builder::As(q, Heads(kTokens)), Builder::As(k, Heads(kTokens)),
              Builder::As(v, Heads(kTokens))},
             Heads(kTokens));
  b.Linear(Builder::As(y, rows), kWidth);
  const Found found(b);
  ASSERT_TRUE(found.valid());
  const std::string projection = "attention.projection";
  EXPECT_THAT(found.roles(),
              ElementsAre("norm.whole", projection, projection, projection,
                          projection, projection, projection, "attention.fused",
                          "attention.output"));
  // The copies hold one value: this is no attention across sources.
  EXPECT_THAT(found.traits(7), ElementsAre("fused"));
}

TEST(AttentionTest, SplitProjectionsWithWhichAPieceEnds) {
  const Shape rows = {2, kTokens, kWidth}, matrix = {2 * kTokens, kWidth};
  Builder b;
  const auto x = b.Bound(rows);
  for (int i = 0; i < 2; ++i) {
    const auto copy = b.Call("clone", {x, int64_t{0}}, rows);
    b.Call("mm",
           {Builder::As(copy, matrix),
            Builder::Transposed(b.Bound({kWidth, kWidth}))},
           matrix);
  }
  const Found found(b);
  EXPECT_THAT(found.roles(), Each("attention.projection"));
}

TEST(AttentionTest, TheMeanOfAPoolingHeadsOnlyQuery) {
  const auto roles = [](int64_t queries) {
    Builder b;
    const auto heads = [&](int64_t tokens) {
      return Builder::As(b.Linear(b.Bound({2, tokens, kWidth}), kWidth),
                         Heads(tokens));
    };
    const auto q = heads(queries), k = heads(kTokens), v = heads(kTokens);
    const auto y =
        b.Call("scaled_dot_product_attention", {q, k, v}, Heads(queries));
    const auto mean =
        b.Call("mean", {Builder::As(y, {2, queries, kWidth}), int64_t{1}},
               {2, kWidth});
    b.Linear(mean, kWidth);
    return Found(b).roles();
  };
  const std::string projection = "attention.projection";
  EXPECT_THAT(roles(1),
              ElementsAre(projection, projection, projection, "attention.fused",
                          "attention.heads", "attention.output"));
  // The mean of several queries is no part of the attention.
  EXPECT_THAT(roles(2), ElementsAre(projection, projection, projection,
                                    "attention.fused", "", ""));
}

TEST(AttentionTest, ExplicitWithScaleAndMask) {
  Builder b;
  const auto x = b.Bound({2, kTokens, kWidth});
  const auto q = b.Linear(x, kWidth), k = b.Linear(x, kWidth),
             v = b.Linear(x, kWidth);
  const Shape square = {2, kHeads, kTokens, kTokens};
  auto scores = b.Call("matmul",
                       {Builder::As(q, Heads(kTokens)),
                        Builder::As(k, {2, kHeads, kSize, kTokens})},
                       square);
  scores = b.Call("mul", {scores, srg::FloatHole{0}}, square);
  const auto positions = b.Integers({kTokens, 1});
  const auto mask = b.Call("le", {positions, positions}, {kTokens, kTokens},
                           srg::DataType::kBool);
  scores = b.Call("masked_fill", {scores, mask, srg::FloatHole{1}}, square);
  const auto weights =
      b.Call("softmax", {scores, int64_t{-1}, std::monostate()}, square);
  const auto y = b.Call("matmul", {weights, Builder::As(v, Heads(kTokens))},
                        Heads(kTokens));
  const auto joined = b.Call("clone", {y, std::monostate()}, Heads(kTokens));
  b.Linear(Builder::As(joined, {2, kTokens, kWidth}), kWidth);
  const Found found(b);
  EXPECT_THAT(
      found.roles(),
      ElementsAre("attention.projection", "attention.projection",
                  "attention.projection", "attention.scores", "attention.mask",
                  "", "attention.mask", "attention.softmax", "attention.values",
                  "attention.heads", "attention.output"));
  EXPECT_THAT(found.traits(3), ElementsAre("explicit", "causal"));
}

TEST(AttentionTest, OneProjectionMadeInChunks) {
  Builder b;
  const auto x = b.Bound({2, kTokens, kWidth});
  const auto qkv = b.Linear(x, 3 * kWidth);
  auto q = Builder::As(qkv, Heads(kTokens)), k = q, v = q;
  k.storage_offset = kWidth;
  v.storage_offset = 2 * kWidth;
  b.Call("scaled_dot_product_attention", {q, k, v}, Heads(kTokens));
  const Found found(b);
  EXPECT_THAT(found.roles(),
              ElementsAre("attention.projection", "attention.fused"));
  EXPECT_THAT(found.traits(1), Not(Contains("cross")));
}

TEST(AttentionTest, FewerHeadsOfKeys) {
  Builder b;
  b.Call("scaled_dot_product_attention",
         {b.Bound(Heads(kTokens)), b.Bound(Heads(kTokens, 2)),
          b.Bound(Heads(kTokens, 2))},
         Heads(kTokens));
  EXPECT_THAT(Found(b).traits(0), ElementsAre("fused", "grouped_query"));
}

TEST(AttentionTest, AcrossSources) {
  Builder b;
  const auto x = b.Bound({2, kTokens, kWidth});
  const auto memory = b.Bound({2, 9, kWidth});
  const auto q = b.Linear(x, kWidth), k = b.Linear(memory, kWidth),
             v = b.Linear(memory, kWidth);
  b.Call("scaled_dot_product_attention",
         {Builder::As(q, Heads(kTokens)), Builder::As(k, Heads(9)),
          Builder::As(v, Heads(9))},
         Heads(kTokens));
  const Found found(b);
  EXPECT_THAT(found.traits(3), ElementsAre("fused", "cross"));
  const int region = found.regions().region_of(3);
  EXPECT_EQ(found.regions().all()[region].memory,
            found.frame().operands(1)[0].value);
}

TEST(AttentionTest, OneQueryAndItsCache) {
  Builder b;
  const auto x = b.Bound({2, 1, kWidth});
  const auto q = b.Linear(x, kWidth), k = b.Linear(x, kWidth);
  const auto keys = b.Call("cat",
                           {std::vector<srg::TensorListEntry>{
                                b.Bound(Heads(7)), Builder::As(k, Heads(1))},
                            int64_t{-2}},
                           Heads(8));
  b.Call("scaled_dot_product_attention",
         {Builder::As(q, Heads(1)), keys, b.Bound(Heads(8))}, Heads(1));
  const Found found(b);
  EXPECT_EQ(found.role(1), "attention.projection");
  EXPECT_EQ(found.role(2), "kv_cache.update");
  EXPECT_THAT(found.traits(3), ElementsAre("fused", "one_query", "cached"));
}

TEST(AttentionTest, PiecesOfIt) {
  // The output of a product in the previous piece, a sum, a norm and an MLP.
  Builder b;
  const auto out = b.Linear(b.Bound({2, kTokens, kWidth}), kWidth);
  const Shape rows = {2, kTokens, kWidth};
  const auto sum = b.Call("add", {b.Bound(rows), out}, rows);
  const auto normal =
      b.Call("layer_norm",
             {sum, std::vector<int64_t>{kWidth}, b.Bound({kWidth})}, rows);
  const auto wide = b.Linear(normal, 4 * kWidth);
  const auto active = b.Call("gelu", {wide}, {2, kTokens, 4 * kWidth});
  b.Linear(active, kWidth);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("attention.output", "", "norm.whole", "mlp.up",
                          "mlp.activation", "mlp.down"));

  // Projections whose product follows in the next piece.
  Builder end;
  const auto x = end.Bound(rows);
  end.Linear(x, kWidth);
  end.Linear(x, kWidth);
  EXPECT_THAT(Found(end).roles(),
              ElementsAre("attention.projection", "attention.projection"));
}

TEST(AttentionTest, APoolerIsNoMlpBehindTheOutput) {
  Builder b;
  const auto down = b.Linear(b.Bound({2, kTokens, 2 * kWidth}), kWidth);
  const Shape rows = {2, kTokens, kWidth};
  const auto sum = b.Call("add", {b.Bound(rows), down}, rows);
  const auto normal =
      b.Call("layer_norm",
             {sum, std::vector<int64_t>{kWidth}, b.Bound({kWidth})}, rows);
  const auto pooled = b.Linear(Builder::As(normal, {2, kWidth}), kWidth);
  b.Call("tanh", {pooled}, {2, kWidth});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("mlp.down", "", "norm.whole", "", ""));
}

TEST(AttentionTest, BiasOfATableByDistance) {
  Builder b;
  const Shape square = {2, kHeads, kTokens, kTokens};
  const Shape pairs = {2, kTokens, kTokens};
  const auto places = b.Integers({2, kTokens});
  const auto far = b.Call("sub",
                          {Builder::As(places, {2, 1, kTokens}),
                           Builder::As(places, {2, kTokens, 1})},
                          pairs, srg::DataType::kInt64);
  const auto size = b.Call("abs", {far}, pairs, srg::DataType::kInt64);
  const auto rows = b.Call("index", {b.Bound({32, kHeads}), Entries{size}},
                           {2, kTokens, kTokens, kHeads});
  const auto bias = b.Call("div", {rows, srg::FloatHole{0}}, square);
  auto scores = b.Call(
      "matmul", {b.Bound(Heads(kTokens)), b.Bound({2, kHeads, kSize, kTokens})},
      square);
  scores = b.Write("add_", {scores, Builder::As(bias, square)});
  const auto largest =
      b.Call("amax", {scores, Integers{-1}, true}, {2, kHeads, kTokens, 1});
  scores = b.Call("sub", {scores, largest}, square);
  b.Call("softmax", {scores, int64_t{-1}, std::monostate()}, square);
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.bias", "attention.bias", "attention.bias",
                  "attention.bias", "attention.scores", "attention.mask",
                  "attention.mask", "attention.mask", "attention.softmax"));
}

TEST(AttentionTest, BiasOfAFusedCall) {
  Builder b;
  const auto rows = b.Call("abs", {b.Integers({kTokens, kTokens})},
                           {kTokens, kTokens}, srg::DataType::kInt64);
  const auto bias = b.Call("embedding", {b.Bound({32, kHeads}), rows},
                           {kTokens, kTokens, kHeads});
  b.Call("scaled_dot_product_attention",
         {b.Bound(Heads(kTokens)), b.Bound(Heads(kTokens)),
          b.Bound(Heads(kTokens)),
          Builder::As(bias, {1, kHeads, kTokens, kTokens})},
         Heads(kTokens));
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.bias", "embedding.look_up", "attention.fused"));
}

TEST(AttentionTest, ABiasCopiedBeforeItsCall) {
  Builder b;
  const auto bias =
      b.Call("embedding", {b.Bound({32, kHeads}), b.Integers({kTokens})},
             {kTokens, kHeads});
  const auto copied = b.Call("clone", {bias}, {1, kHeads, 1, kTokens});
  b.Call("scaled_dot_product_attention",
         {b.Bound(Heads(1)), b.Bound(Heads(kTokens)), b.Bound(Heads(kTokens)),
          copied},
         Heads(1));
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("embedding.look_up", "attention.mask", "attention.fused"));
}

TEST(AttentionTest, HeadsCopiedForSeveralQueries) {
  // The projections are in the previous piece.
  Builder b;
  srg::TensorView few = b.Bound(Heads(kTokens, 2));
  few.sizes = {2, 2, 2, kTokens, kSize};
  few.strides = {2 * kTokens * kSize, kTokens * kSize, 0, kSize, 1};
  const auto keys = b.Call("clone", {few}, {2, 2, 2, kTokens, kSize});
  b.Call("scaled_dot_product_attention",
         {b.Bound(Heads(kTokens)), Builder::As(keys, Heads(kTokens)),
          b.Bound(Heads(kTokens))},
         Heads(kTokens));
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("attention.heads", "attention.fused"));
}

TEST(AttentionTest, TheProjectionThatAPieceEndsWith) {
  const Shape rows = {2, kTokens, kWidth};
  const auto normal = [&](Builder* b) {
    return b->Call("layer_norm",
                   {b->Bound(rows), Integers{kWidth}, b->Bound({kWidth})},
                   rows);
  };
  // Queries times a number, or all three at once.
  for (const int64_t width : {kWidth, 3 * kWidth}) {
    Builder b;
    const auto q = b.Linear(normal(&b), width);
    b.Call("mul", {q, 0.5}, {2, kTokens, width});
    EXPECT_THAT(Found(b).roles(),
                ElementsAre("norm.whole", "attention.projection",
                            "attention.projection"));
  }
  // A product with its weight also ends a norm.
  Builder product;
  const auto scaled =
      product.Call("mul", {product.Bound({kWidth}), product.Bound(rows)}, rows);
  product.Linear(scaled, kWidth);
  EXPECT_EQ(Found(product).role(1), "attention.projection");

  // The projection of an MLP, or scores.
  Builder wide;
  wide.Linear(normal(&wide), 4 * kWidth);
  EXPECT_EQ(Found(wide).role(1), "");
  // A pooler projects only some of the rows.
  Builder pooled;
  pooled.Linear(Builder::As(normal(&pooled), {2, kWidth}), kWidth);
  EXPECT_EQ(Found(pooled).role(1), "");
  // Another kind of call reads the projection.
  Builder read;
  const auto y = read.Linear(normal(&read), kWidth);
  read.Call("tanh", {y}, rows);
  EXPECT_EQ(Found(read).role(1), "");
}

TEST(AttentionTest, QueriesTimesANumberAmongProjections) {
  Builder b;
  const Shape rows = {2, kTokens, kWidth};
  const auto x = b.Bound(rows);
  b.Call("mul", {b.Linear(x, kWidth), 0.5}, rows);
  b.Linear(x, kWidth);
  EXPECT_THAT(Found(b).roles(), Each("attention.projection"));
}

TEST(AttentionTest, TheOutputWithDropoutBeforeAnActivationInParts) {
  Builder b;
  const Shape rows = {2, kTokens, kWidth}, wide = {2, kTokens, 4 * kWidth};
  const auto out = b.Linear(b.Bound(rows), kWidth);
  const auto mask = b.Bound(rows);
  b.Write("bernoulli_", {mask, 0.9});
  const auto dropped = b.Call("mul", {out, mask}, rows);
  const auto sum = b.Call("add", {b.Bound(rows), dropped}, rows);
  const auto normal =
      b.Call("layer_norm", {sum, Integers{kWidth}, b.Bound({kWidth})}, rows);
  // The activation begins with x + x^3.
  const auto up = b.Linear(normal, 4 * kWidth);
  const auto cubes = b.Call("pow", {up, 3.0}, wide);
  b.Call("tanh", {b.Call("add", {up, cubes}, wide)}, wide);
  const auto roles = Found(b).roles();
  EXPECT_EQ(roles[0], "attention.output");
  EXPECT_EQ(roles[1], "attention.dropout");
  EXPECT_EQ(roles[2], "attention.dropout");
  EXPECT_EQ(roles[3], "");
}

TEST(AttentionTest, TheOutputOfHeadsThatAnotherPieceLeft) {
  Builder b;
  auto heads = b.Bound({2, 4, kTokens, 16});
  heads.sizes.assign({2, kTokens, 4, 16});
  heads.strides.assign({4 * kTokens * 16, 16, kTokens * 16, 1});
  const auto joined = b.Call("clone", {heads}, {2, kTokens, 4, 16});
  const auto out = b.Linear(Builder::As(joined, {2, kTokens, 64}), 64);
  const auto sum =
      b.Call("add", {b.Bound({2, kTokens, 64}), out}, {2, kTokens, 64});
  const auto norm = b.Call("layer_norm", {sum}, {2, kTokens, 64});
  b.Call("relu", {b.Linear(norm, 128)}, {2, kTokens, 128});
  EXPECT_EQ(Found(b).role(0), "attention.heads");
  EXPECT_EQ(Found(b).role(1), "attention.output");
}

TEST(AttentionTest, PiecesThatMeetBetweenProductsAndSoftmax) {
  const Shape heads = {2, 4, kTokens, 16}, scores = {2, 4, kTokens, kTokens};
  Builder first;
  const auto x = first.Call("layer_norm", {first.Bound({2, kTokens, 64})},
                            {2, kTokens, 64});
  const auto q = first.Linear(x, 64);
  const auto k = first.Linear(first.Call("relu", {x}, {2, kTokens, 64}), 64);
  first.Call("matmul",
             {Builder::As(q, heads), Builder::As(k, {2, 4, 16, kTokens})},
             scores);
  EXPECT_THAT(Found(first).roles(),
              ElementsAre("norm.whole", "attention.projection", "",
                          "attention.projection", "attention.scores"));

  Builder second;
  const auto scaled =
      second.Call("div", {second.Bound(scores), int64_t{4}}, scores);
  const auto weights = second.Call("softmax", {scaled, int64_t{-1}}, scores);
  second.Call("matmul", {weights, second.Bound(heads)}, heads);
  EXPECT_THAT(
      Found(second).roles(),
      ElementsAre("attention.mask", "attention.softmax", "attention.values"));

  // A mask and a lower bound follow the products, and the projection of the
  // values is beside them.
  Builder masked;
  const auto y = masked.Call("layer_norm", {masked.Bound({2, kTokens, 64})},
                             {2, kTokens, 64});
  const auto left = masked.Linear(y, 64), right = masked.Linear(y, 64);
  masked.Linear(y, 64);
  const auto cores = masked.Call("bmm",
                                 {Builder::As(left, {8, kTokens, 16}),
                                  Builder::As(right, {8, 16, kTokens})},
                                 {8, kTokens, kTokens});
  const auto sum =
      masked.Call("add", {cores, masked.Bound({kTokens, kTokens})}, scores);
  const auto least = masked.Call("full", {Integers{}, int64_t{0}}, {});
  masked.Call("maximum", {sum, least}, scores);
  EXPECT_THAT(
      Found(masked).roles(),
      ElementsAre("norm.whole", "attention.projection", "attention.projection",
                  "attention.projection", "attention.scores", "attention.mask",
                  "attention.mask", "attention.mask"));

  // As many keys as queries, both with heads: no cache.
  Builder third;
  const auto products = third.Call(
      "matmul", {third.Bound({8, kTokens, 16}), third.Bound({8, 16, kTokens})},
      {8, kTokens, kTokens});
  third.Call("softmax", {products, int64_t{-1}}, {8, kTokens, kTokens});
  EXPECT_THAT(Found(third).traits(0), ElementsAre("explicit"));

  // The operands of the product are unknown.
  Builder other;
  other.Call("matmul", {other.Bound(heads), other.Bound({2, 4, 16, kTokens})},
             scores);
  EXPECT_THAT(Found(other).roles(), Each(""));
}

TEST(AttentionTest, DistancesBeforeTheirTable) {
  const Shape pairs = {kTokens, kTokens};
  const auto away = [&](Builder* b) {
    const auto places =
        b->Call("arange", {int64_t{kTokens}}, {kTokens}, srg::DataType::kInt64);
    return b->Call(
        "sub",
        {Builder::As(places, {1, kTokens}), Builder::As(places, {kTokens, 1})},
        pairs, srg::DataType::kInt64);
  };
  Builder b;
  const auto far = away(&b);
  b.Call("gt", {far, int64_t{0}}, pairs, srg::DataType::kBool);
  b.Call("abs", {far}, pairs, srg::DataType::kInt64);
  EXPECT_THAT(Found(b).roles(), Each("attention.bias"));

  // A mask of near keys.
  Builder mask;
  const auto near = away(&mask);
  mask.Call("lt", {near, int64_t{3}}, pairs, srg::DataType::kBool);
  EXPECT_THAT(Found(mask).roles(), Each(""));

  // A mask of keys that are near on either side.
  Builder window;
  const auto apart =
      window.Call("abs", {away(&window)}, pairs, srg::DataType::kInt64);
  window.Call("le", {apart, int64_t{3}}, pairs, srg::DataType::kBool);
  EXPECT_THAT(Found(window).roles(), Each(""));

  // Distances that are not between each key and each query.
  Builder flat;
  const auto places = flat.Integers({2, kTokens});
  const auto steps =
      flat.Call("sub", {places, places}, {2, kTokens}, srg::DataType::kInt64);
  flat.Call("abs", {steps}, {2, kTokens}, srg::DataType::kInt64);
  EXPECT_THAT(Found(flat).roles(), Each(""));
}

TEST(AttentionTest, CappedScores) {
  Builder b;
  const Shape scores = {2, kHeads, kTokens, kTokens};
  const auto product = b.Call(
      "matmul", {b.Bound(Heads(kTokens)), b.Bound(Heads(kTokens))}, scores);
  const auto share = b.Call("div", {product, srg::FloatHole{0}}, scores);
  const auto bent = b.Call("tanh", {share}, scores);
  const auto capped = b.Call("mul", {bent, srg::FloatHole{0}}, scores);
  const auto weights =
      b.Call("softmax", {capped, int64_t{-1}, std::monostate()}, scores);
  b.Call("matmul", {weights, b.Bound(Heads(kTokens))}, Heads(kTokens));
  // The program asks for the mean of the weights.
  b.Call("mean", {weights, std::vector<int64_t>{1}}, {2, kTokens, kTokens});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.scores", "attention.mask", "attention.mask",
                  "attention.mask", "attention.softmax", "attention.values",
                  "attention.weights"));
}

TEST(AttentionTest, OtherSoftmaxesAreNone) {
  Builder b;
  const auto scores = b.Linear(b.Bound({2, kWidth}), 3);
  b.Call("softmax", {scores, int64_t{-1}, std::monostate()}, {2, 3});
  EXPECT_THAT(Found(b).roles(), ElementsAre("", ""));
}

}  // namespace
}  // namespace djinn::semantics
