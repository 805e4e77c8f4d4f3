// Tests heads of attention that are rotated or pass a norm before their scores.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

using Entries = std::vector<srg::TensorListEntry>;
using Integers = std::vector<int64_t>;

constexpr int64_t kTokens = 5, kWidth = 16, kHeads = 4, kSize = 4;

Shape Heads(int64_t tokens, int64_t heads = kHeads) {
  return {2, heads, tokens, kSize};
}

TEST(RotationTest, RotationOfAPartOfEachHead) {
  // The products follow in the next piece.
  Builder b;
  const auto heads = b.Linear(b.Bound({2, kTokens, kWidth}), 3 * kWidth);
  const Shape part = {2, kHeads, kTokens, 2}, half = {2, kHeads, kTokens, 1};
  const auto angles = b.Bound({2, 1, kTokens, 2});
  const auto whole = b.Call("mul", {Builder::As(heads, part), angles}, part);
  const auto turned = b.Call("neg", {Builder::As(heads, half)}, half);
  const auto joined = b.Call(
      "cat", {Entries{turned, Builder::As(heads, half)}, int64_t{-1}}, part);
  const auto other = b.Call("mul", {joined, angles}, part);
  const auto sum = b.Call("add", {whole, other}, part);
  b.Call("cat", {Entries{sum, Builder::As(heads, part)}, int64_t{-1}},
         Heads(kTokens));
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.projection", "attention.heads", "attention.heads",
                  "attention.heads", "attention.heads", "attention.heads",
                  "attention.heads"));

  // The same projection made the keys.
  const auto keys = b.Call("mul", {Builder::As(heads, part), angles}, part);
  const auto back = b.Call("neg", {Builder::As(heads, half)}, half);
  const auto both = b.Call(
      "cat", {Entries{back, Builder::As(heads, half)}, int64_t{-1}}, part);
  b.Call("add", {keys, both}, part);
  EXPECT_THAT(Found(b).roles(), Contains("attention.heads").Times(10));

  // The parts are joined, but not rotated.
  Builder plain;
  const auto x = plain.Linear(plain.Bound({2, kTokens, kWidth}), 3 * kWidth);
  plain.Call("cat",
             {Entries{Builder::As(x, half), Builder::As(x, half)}, int64_t{-1}},
             part);
  EXPECT_THAT(Found(plain).roles(), Each(""));
}

// The angles are rows of a table, each number repeated; the products follow in
// the next piece.
TEST(RotationTest, RotationOfPairsSideBySide) {
  Builder b;
  const auto heads = b.Linear(b.Bound({2, 1, kWidth}), kWidth);
  const Shape whole = {2, 1, kHeads, 4}, half = {2, 1, kHeads, 2};
  const auto angles =
      b.Call("gather", {b.Bound({2, 64, 4}), int64_t{1}, b.Integers({2, 1, 4})},
             {2, 1, 4});
  const auto sines =
      b.Call("clone", {Builder::As(angles, {2, 1, 1, 2, 2})}, {2, 1, 1, 2, 2});
  const auto cosines =
      b.Call("clone", {Builder::As(angles, {2, 1, 1, 2, 2})}, {2, 1, 1, 2, 2});
  b.Call("mul", {Builder::As(heads, whole), Builder::As(cosines, {2, 1, 1, 4})},
         whole);
  const auto turned = b.Call("neg", {Builder::As(heads, half)}, half);
  b.Call("stack", {Entries{turned, Builder::As(heads, half)}, int64_t{-1}},
         {2, 1, kHeads, 2, 2});
  (void)sines;
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.projection", "attention.heads", "attention.heads",
                  "attention.heads", "attention.heads", "attention.heads",
                  "attention.heads"));
}

// The negated numbers are in the previous piece.
TEST(RotationTest, RotationThatBeginsWithItsPairs) {
  for (const bool turns : {true, false}) {
    Builder b;
    const Shape whole = {2, 1, kHeads, 4}, half = {2, 1, kHeads, 2};
    auto part = b.Bound({2, 1, kHeads, 8});
    part.sizes.assign(half.begin(), half.end());
    const auto pairs =
        b.Call("stack", {Entries{b.Bound(half), part}, int64_t{-1}},
               {2, 1, kHeads, 2, 2});
    const auto product = b.Call(
        "mul",
        {Builder::As(pairs, whole), b.Bound({2, 1, turns ? 1 : kHeads, 4})},
        whole);
    b.Call("add", {b.Bound(whole), product}, whole);
    EXPECT_THAT(Found(b).roles(), Each(turns ? "attention.heads" : ""));
  }
}

TEST(RotationTest, RotationAsADifferenceAndASum) {
  Builder b;
  const auto heads = b.Linear(b.Bound({2, kTokens, kWidth}), kWidth);
  const Shape half = {2, kHeads, kTokens, 2};
  const auto part = Builder::As(heads, half);
  const auto cosine = b.Bound({2, 1, kTokens, 2}),
             sine = b.Bound({2, 1, kTokens, 2});
  const auto times = [&](const srg::TensorView& factor) {
    return b.Call("mul", {part, factor}, half);
  };
  const auto less = b.Call("sub", {times(cosine), times(sine)}, half);
  const auto more = b.Call("add", {times(cosine), times(sine)}, half);
  b.Call("cat", {Entries{less, more}, int64_t{-1}}, Heads(kTokens));
  EXPECT_THAT(Found(b).roles(), Contains("attention.heads").Times(7));
  EXPECT_EQ(Found(b).role(0), "attention.projection");
}

// One projection makes queries and a single head of keys, which is taken by
// index and rotated.
TEST(RotationTest, HeadsTakenByIndex) {
  Builder b;
  const auto all = b.Linear(b.Bound({2, kTokens, kWidth}), 2 * kWidth);
  const int64_t size = kWidth / kHeads;
  const Shape one = {2, 1, kTokens, size}, half = {2, 1, kTokens, size / 2};
  const auto keys = b.Call(
      "index",
      {Builder::As(all, {2, kTokens, 2 * kHeads, size}), b.Integers({1})},
      {2, kTokens, 1, size});
  const auto turned = b.Call("neg", {Builder::As(keys, half)}, half);
  const auto joined = b.Call(
      "cat", {Entries{turned, Builder::As(keys, half)}, int64_t{-1}}, one);
  const auto other = b.Call("mul", {joined, b.Bound(one)}, one);
  const auto plain = b.Call("mul", {Builder::As(keys, one), b.Bound(one)}, one);
  const auto sum = b.Call("add", {plain, other}, one);
  b.Call("scaled_dot_product_attention",
         {b.Bound(Heads(kTokens)), sum, b.Bound(one)}, Heads(kTokens));
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("attention.projection", "attention.heads", "attention.heads",
                  "attention.heads", "attention.heads", "attention.heads",
                  "attention.heads", "attention.fused"));
}

TEST(RotationTest, HeadsThatPassANorm) {
  Builder b;
  const Shape rows = {2, kTokens, kWidth}, one = {2, kTokens, 1};
  const auto queries = b.Linear(b.Bound(rows), kWidth);
  const auto squares = b.Call("pow", {queries, int64_t{2}}, rows);
  const auto mean =
      b.Call("mean", {squares, std::vector<int64_t>{-1}, true}, one);
  const auto scale = b.Call("rsqrt", {mean}, one);
  const auto scaled = b.Call("mul", {queries, scale}, rows);
  const auto normal = b.Call("mul", {b.Bound({kWidth}), scaled}, rows);
  b.Call("scaled_dot_product_attention",
         {Builder::As(normal, Heads(kTokens)), b.Bound(Heads(kTokens)),
          b.Bound(Heads(kTokens))},
         Heads(kTokens));
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("attention.projection", "norm.statistics",
                          "norm.statistics", "norm.scale", "norm.products",
                          "norm.products", "attention.fused"));
}

}  // namespace
}  // namespace djinn::semantics
