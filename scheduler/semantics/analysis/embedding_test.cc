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

TEST(EmbeddingTest, LookUpsAndTheirSum) {
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 16}), b.Integers({2, 5})}, {2, 5, 16});
  const auto places =
      b.Call("embedding", {b.Bound({32, 16}), b.Integers({5})}, {5, 16});
  b.Call("add", {tokens, places}, {2, 5, 16});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("embedding.look_up", "embedding.look_up", "embedding.sum"));
}

TEST(EmbeddingTest, RowsTimesANumber) {
  Builder b;
  const Shape rows = {2, 5, 16};
  const auto look_up = [&] {
    return b.Call("embedding", {b.Bound({96, 16}), b.Integers({2, 5})}, rows);
  };
  const auto tokens = b.Call("mul", {look_up(), 4.0}, rows);
  const auto places = b.Call("mul", {look_up(), b.Bound({})}, rows);
  b.Call("add", {tokens, places}, rows);
  // A product with one factor for each element is a gate, not a scale.
  b.Call("mul", {look_up(), b.Bound(rows)}, rows);
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("embedding.look_up", "embedding.scale", "embedding.look_up",
                  "embedding.scale", "embedding.sum", "embedding.look_up", ""));
}

TEST(EmbeddingTest, PositionsTakenByIndex) {
  const Shape rows = {2, 5, 16};
  const auto take = [&](Builder* b) {
    return b->Call("index", {b->Bound({32, 16}), Entries{b->Integers({2, 5})}},
                   rows);
  };
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 16}), b.Integers({2, 5})}, rows);
  b.Call("add", {tokens, take(&b)}, rows);
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("embedding.look_up", "embedding.look_up", "embedding.sum"));

  Builder other;
  other.Call("add", {other.Bound(rows), take(&other)}, rows);
  EXPECT_THAT(Found(other).roles(), Each(""));

  // Rows of a table by index_select, and rows computed from others.
  Builder selected;
  const auto words = selected.Call(
      "embedding", {selected.Bound({96, 16}), selected.Integers({2, 5})}, rows);
  const auto places =
      selected.Call("add", {selected.Integers({2, 5}), int64_t{2}}, {2, 5},
                    srg::DataType::kInt64);
  const auto taken = selected.Call(
      "index_select",
      {selected.Bound({32, 16}), int64_t{0}, Builder::As(places, {10})},
      {10, 16});
  selected.Call("add", {words, Builder::As(taken, rows)}, rows);
  EXPECT_THAT(Found(selected).roles(),
              ElementsAre("embedding.look_up", "embedding.rows",
                          "embedding.look_up", "embedding.sum"));
}

TEST(EmbeddingTest, DropoutBehindTheNormOfRows) {
  const Shape rows = {2, 5, 16};
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 16}), b.Integers({2, 5})}, rows);
  const auto normal =
      b.Call("layer_norm", {tokens, Integers{16}, b.Bound({16})}, rows);
  const auto dropped = b.Draw("dropout", {normal, 0.1, true}, rows);
  const auto later =
      b.Call("layer_norm", {dropped, Integers{16}, b.Bound({16})}, rows);
  b.Draw("dropout", {later, 0.1, true}, rows);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("embedding.look_up", "norm.whole",
                          "embedding.dropout", "norm.whole", ""));
}

TEST(EmbeddingTest, RowsCountedFromTokens) {
  constexpr srg::DataType kInt = srg::DataType::kInt64;
  Builder b;
  const auto tokens = b.Integers({2, 5});
  const auto real =
      b.Call("ne", {tokens, int64_t{1}}, {2, 5}, srg::DataType::kBool);
  const auto count = b.Call("cumsum", {real, int64_t{1}}, {2, 5}, kInt);
  const auto rows = b.Call("mul", {count, real}, {2, 5}, kInt);
  b.Call("embedding", {b.Bound({32, 16}), rows}, {2, 5, 16});
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("embedding.rows", "embedding.rows", "embedding.rows",
                          "embedding.look_up"));

  // A range that does not depend on the tokens belongs to the model, not to the
  // look-up.
  Builder up;
  const auto range = up.Call("arange", {int64_t{5}}, {5}, kInt);
  const auto later = up.Call("add", {range, up.Integers({})}, {5}, kInt);
  up.Call("embedding", {up.Bound({32, 16}), later}, {5, 16});
  EXPECT_THAT(Found(up).roles(), ElementsAre("", "", "embedding.look_up"));

  // The largest of several scores is a choice.
  Builder choice;
  const auto next =
      choice.Call("argmax", {choice.Bound({2, 5, 96})}, {2, 5}, kInt);
  const auto chosen = choice.Call("add", {next, int64_t{2}}, {2, 5}, kInt);
  choice.Call("embedding", {choice.Bound({99, 16}), chosen}, {2, 5, 16});
  EXPECT_THAT(Found(choice).roles(), ElementsAre("", "", "embedding.look_up"));
}

// Positions from fractions of an image's sides, as a mask gives them, among
// fixed ones.
TEST(EmbeddingTest, RowsByShares) {
  constexpr auto kInt = srg::DataType::kInt64;
  Builder b;
  const auto mask = b.Bound({1, 4, 4}, srg::DataType::kBool);
  const auto steps = b.Call("arange", {int64_t{4}}, {4});
  const auto count = b.Call("sum", {mask, Integers{1}}, {1, 1}, kInt);
  const auto part = b.Call("reciprocal", {count}, {1, 1});
  const auto shares = b.Call("mul", {Builder::As(steps, {1, 4}), part}, {1, 4});
  const auto limits = b.Call("arange", {int64_t{3}}, {3});
  const auto rows = b.Call("bucketize", {shares, limits}, {1, 4}, kInt);
  b.Call("embedding", {b.Bound({4, 16}), rows}, {1, 4, 16});
  // The mask serves more than the look-up.
  b.Call("all", {mask}, {}, srg::DataType::kBool);
  EXPECT_THAT(Found(b).roles(),
              ElementsAre("embedding.rows", "embedding.rows", "embedding.rows",
                          "embedding.rows", "embedding.rows", "embedding.rows",
                          "embedding.look_up", ""));
}

TEST(EmbeddingTest, LookUpsSideBySide) {
  Builder b;
  const auto token =
      b.Call("embedding", {b.Bound({96, 16}), b.Integers({2, 5})}, {2, 5, 16});
  std::vector<srg::TensorListEntry> sides;
  for (int i = 0; i < 2; ++i) {
    sides.push_back(
        b.Call("embedding", {b.Bound({64, 8}), b.Integers({2, 5})}, {2, 5, 8}));
  }
  const auto place = b.Call("cat", {sides, int64_t{-1}}, {2, 5, 16});
  const auto sum = b.Call("add", {token, place}, {2, 5, 16});
  b.Call("add", {sum, b.Bound({2, 5, 16})}, {2, 5, 16});
  EXPECT_THAT(
      Found(b).roles(),
      ElementsAre("embedding.look_up", "embedding.look_up", "embedding.look_up",
                  "embedding.sum", "embedding.sum", ""));
}

TEST(EmbeddingTest, RotaryPositions) {
  Builder b;
  const auto angles =
      b.Call("mul", {b.Bound({1, 5, 1}), b.Bound({6})}, {1, 5, 6});
  b.Call("cos", {angles}, {1, 5, 6});
  b.Call("sin", {angles}, {1, 5, 6});
  const Found found(b);
  EXPECT_THAT(found.roles(), Each("embedding.rotary"));
  EXPECT_THAT(found.traits(1), ElementsAre("rotary"));
}

TEST(EmbeddingTest, PatchesOfAnImage) {
  Builder b;
  const auto patches =
      b.Convolve(b.Bound({2, 3, 32, 32}), {16, 3, 8, 8}, 8, {2, 16, 4, 4});
  b.Call("add", {Builder::As(patches, {2, 16, 16}), b.Bound({1, 16, 16})},
         {2, 16, 16});
  const Found found(b);
  EXPECT_THAT(found.roles(),
              ElementsAre("embedding.patches", "embedding.positions"));
}

TEST(EmbeddingTest, PositionsLookedAtAsAnImage) {
  Builder b;
  // All but the first of 17 positions, whose channels lie side by side.
  auto table = b.Bound({1, 16, 4, 4});
  table.strides = {272, 1, 64, 16};
  table.storage_offset = 16;
  b.Call("upsample_bicubic2d", {table, Integers{2, 2}}, {1, 16, 2, 2});
  EXPECT_THAT(Found(b).roles(), ElementsAre("embedding.positions"));

  // An image from before the run is an image, not a table.
  Builder image;
  image.Call("upsample_bicubic2d", {image.Bound({1, 16, 4, 4}), Integers{8, 8}},
             {1, 16, 8, 8});
  EXPECT_THAT(Found(image).roles(), ElementsAre(""));
}

TEST(EmbeddingTest, TheMaskOfAnImageCounted) {
  Builder b;
  const auto mask =
      b.Call("upsample_nearest2d", {b.Bound({2, 1, 32, 32}), Integers{4, 4}},
             {2, 1, 4, 4});
  const auto whole = b.Integers({2, 1, 4, 4});
  b.Write("copy_", {whole, mask});
  b.Call("sum", {whole, Integers{1}}, {2, 4}, srg::DataType::kInt64);
  EXPECT_THAT(Found(b).roles(), Each("embedding.places"));

  // A grey image that is only reduced.
  Builder grey;
  grey.Call("upsample_nearest2d", {grey.Bound({2, 1, 32, 32}), Integers{4, 4}},
            {2, 1, 4, 4});
  EXPECT_THAT(Found(grey).roles(), Each(""));
}

}  // namespace
}  // namespace djinn::semantics
