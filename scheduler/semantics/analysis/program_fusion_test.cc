// Tests fusions whose parts are in several pieces of a program.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/program.h"
#include "scheduler/semantics/analysis/program_testing.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::ElementsAre;

// Builds patches of an image, and a projector of them.
Builder PatchesAndProjector(int64_t width) {
  Builder b;
  const auto patches =
      b.Call("conv2d",
             {b.Bound({1, 3, 16, 16}), b.Bound({width, 3, 4, 4}),
              std::monostate(), std::vector<int64_t>{4, 4}},
             {1, width, 4, 4});
  const auto x = b.Call("layer_norm",
                        {Builder::As(patches, {1, 16, width}),
                         std::vector<int64_t>{width}, b.Bound({width})},
                        {1, 16, width});
  const auto up = b.Linear(x, 64);
  b.Linear(b.Call("gelu", {up}, {1, 16, 64}), 64);
  return b;
}

// Scatters rows into the places that tokens reserve for them.
Builder PutAmongTokens(int64_t rows) {
  Builder b;
  b.Call("masked_scatter",
         {b.Bound({1, 23, 64}), b.Bound({1, 23, 64}, srg::DataType::kBool),
          b.Bound({rows, 64})},
         {1, 23, 64});
  return b;
}

Builder CopyOf(Shape sizes) {
  Builder b;
  b.Call("cat", {Entries{b.Bound(sizes)}, int64_t{0}}, sizes);
  return b;
}

// The projections keep the width or look like an MLP, and their rows are
// copied.
TEST(ProgramFusionTest, ProjectionsToAJoinInALaterPieceAreAFusion) {
  for (const int64_t width : {64, 32}) {
    Program program;
    auto findings = program.Add("a", Share(PatchesAndProjector(width)), 10);
    const Meaning& first = findings[0].meaning;
    EXPECT_EQ(first.nodes[2].role, width == 64 ? "" : "mlp.up");
    ExpectEach(first, Phase::kVisionEncoding, Modality::kVision);
    EXPECT_EQ(program.Add("b", Share(CopyOf({16, 64})), 10).size(), 1u);

    findings = program.Add("c", Share(PutAmongTokens(16)), 10);
    const Program::Finding* const again = Find(findings, "a");
    EXPECT_THAT(
        RolesOf(*again),
        ElementsAre("embedding.patches", "norm.whole", "fusion.projection",
                    "fusion.projection", "fusion.projection"));
    EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kVisionEncoding);
    EXPECT_EQ(again->meaning.nodes[2].phase, Phase::kMultimodalFusion);
    EXPECT_EQ(again->meaning.nodes[4].modality, Modality::kFusion);
    // The finding is reported once.
    EXPECT_EQ(Find(program.Add("d", Share(CopyOf({16, 64})), 10), "a"),
              nullptr);

    // The same projector, cut at another place.
    Builder other;
    other.Linear(other.Bound({1, 16, 64}), 64);
    findings = program.Add("e", Share(other), 10);
    EXPECT_EQ(findings[0].meaning.nodes[0].role, "fusion.projection");
  }
}

// The projection looks like a query's: a norm precedes it, and nothing follows.
TEST(ProgramFusionTest, AProjectionOfItsWidthToAJoinInALaterPieceIsAFusion) {
  Program program;
  Builder b;
  const auto sound = b.Call(
      "conv1d", {b.Bound({1, 16, 16}), b.Bound({64, 16, 3})}, {1, 64, 16});
  const auto x = b.Call("layer_norm",
                        {Builder::As(sound, {1, 16, 64}),
                         std::vector<int64_t>{64}, b.Bound({64})},
                        {1, 16, 64});
  b.Linear(x, 64);
  EXPECT_EQ(program.Add("a", Share(b), 10)[0].meaning.nodes[2].role,
            "attention.projection");
  const auto findings = program.Add("b", Share(PutAmongTokens(16)), 10);
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[2].role, "fusion.projection");
  EXPECT_EQ(again->meaning.nodes[2].modality, Modality::kFusion);
  EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kForward);
}

// The text's projection is beside the join, and the image's in the previous
// piece.
TEST(ProgramFusionTest, ProjectionsOfBothSidesToACatAreAFusion) {
  Program program;
  Builder image;
  const auto patches = image.Call(
      "conv2d", {image.Bound({1, 3, 16, 16}), image.Bound({32, 3, 4, 4})},
      {1, 32, 4, 4});
  image.Linear(Builder::As(patches, {1, 16, 32}), 64);
  program.Add("image", Share(image), 10);

  Builder join;
  const auto tokens = join.Call(
      "embedding", {join.Bound({96, 32}), join.Integers({1, 7})}, {1, 7, 32});
  const auto text = join.Linear(tokens, 64);
  join.Call("cat", {Entries{join.Bound({1, 16, 64}), text}, int64_t{1}},
            {1, 23, 64});
  const auto findings = program.Add("join", Share(join), 10);
  EXPECT_EQ(findings[0].meaning.nodes[1].role, "fusion.projection");
  EXPECT_EQ(findings[0].meaning.nodes[2].role, "fusion.join");
  EXPECT_EQ(findings[0].meaning.nodes[0].phase, Phase::kForward);
  const Program::Finding* const again = Find(findings, "image");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kVisionEncoding);
  EXPECT_EQ(again->meaning.nodes[1].role, "fusion.projection");
}

// Neighbouring rows are merged before the norm.
TEST(ProgramFusionTest, ANormWithinAProjectorIsOfTheFusion) {
  Program program;
  Builder b;
  const auto patches = b.Call("conv2d",
                              {b.Bound({1, 3, 16, 16}), b.Bound({16, 3, 4, 4}),
                               std::monostate(), std::vector<int64_t>{4, 4}},
                              {1, 16, 4, 4});
  const auto encoded = b.Call("layer_norm",
                              {Builder::As(patches, {1, 16, 16}),
                               std::vector<int64_t>{16}, b.Bound({16})},
                              {1, 16, 16});
  const auto merged = b.Call("clone", {encoded}, {1, 4, 64});
  const auto x =
      b.Call("layer_norm", {merged, std::vector<int64_t>{64}, b.Bound({64})},
             {1, 4, 64});
  b.Linear(x, 64);
  program.Add("a", Share(b), 10);
  const auto findings = program.Add("b", Share(PutAmongTokens(4)), 10);
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_THAT(RolesOf(*again), ElementsAre("embedding.patches", "norm.whole",
                                           "fusion.projection", "norm.whole",
                                           "fusion.projection"));
  EXPECT_EQ(again->meaning.nodes[3].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kVisionEncoding);
}

// A token directly after an encoder is the beginning, as the cache shows later.
TEST(ProgramFusionTest, TheFirstTokenOfADecoderIsNoStep) {
  Program program;
  Builder encoder;
  encoder.Call("lstm", {encoder.Bound({1, 5, 128})}, {1, 5, 128});
  EXPECT_EQ(program.Add("encoder", Share(encoder), 10)[0].meaning.phase,
            Phase::kForward);
  EXPECT_EQ(program.Add("a", Share(LookUp(1)), 10)[0].meaning.phase,
            Phase::kUnspecified);
  const auto findings = program.Add("b", Share(WithCache(1)), 10);
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.phase, Phase::kLlmPrefill);
}

// Applies to what a language model computes from positions before its first
// cache, and to the text that was looked up before the join.
TEST(ProgramFusionTest, PositionsAndTextBesideAScatterAreTheLanguageModels) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  Builder join;
  join.Call(
      "masked_scatter",
      {join.Bound({1, 7, 64}), join.Bound({1, 7, 64}, srg::DataType::kBool),
       join.Bound({1, 16, 64})},
      {1, 7, 64});
  join.Call("ge", {join.Integers({1, 7}), int64_t{0}}, {1, 7},
            srg::DataType::kBool);
  auto findings = program.Add("b", Share(join), 10);
  EXPECT_EQ(findings[0].meaning.nodes[0].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(findings[0].meaning.nodes[1].phase, Phase::kUnspecified);

  Builder cache;
  const auto keys = cache.Linear(cache.Bound({1, 7, 64}), 64);
  cache.Call("cat",
             {Entries{cache.Bound({0}), Builder::As(keys, {1, 4, 7, 16})},
              int64_t{-2}},
             {1, 4, 7, 16});
  findings = program.Add("c", Share(cache), 10);
  const Program::Finding* const text = Find(findings, "a");
  const Program::Finding* const again = Find(findings, "b");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kLlmPrefill);
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->meaning.nodes[0].phase, Phase::kLlmPrefill);
}

TEST(ProgramFusionTest, ProjectionsThatNoJoinReadsAreNoFusion) {
  // Rows behind a norm do not match, nor does another number of rows.
  Builder norm;
  norm.Call(
      "layer_norm",
      {norm.Bound({1, 16, 64}), std::vector<int64_t>{64}, norm.Bound({64})},
      {1, 16, 64});
  for (const auto& [between, rows] :
       {std::pair(norm, 16), std::pair(CopyOf({16, 64}), 15)}) {
    Program program;
    program.Add("a", Share(PatchesAndProjector(64)), 10);
    program.Add("b", Share(between), 10);
    EXPECT_EQ(Find(program.Add("c", Share(PutAmongTokens(rows)), 10), "a"),
              nullptr);
  }
}

// Divides rows by their lengths. The inputs of both sides may be in different
// pieces.
srg::TensorView UnitRows(Builder* b, const srg::TensorView& side) {
  const Shape sizes(side.sizes.begin(), side.sizes.end());
  const auto sum = b->Call("sum", {b->Call("pow", {side, int64_t{2}}, sizes)},
                           {sizes[0], 1});
  const auto length = b->Call("sqrt", {sum}, {sizes[0], 1});
  return b->Call("div", {side, length}, sizes);
}

TEST(ProgramFusionTest, ProjectionsToAComparisonInALaterPieceAreAFusion) {
  Program program;
  Builder image;
  const auto pixels = image.Call(
      "conv2d", {image.Bound({4, 3, 8, 8}), image.Bound({32, 3, 8, 8})},
      {4, 32, 1, 1});
  image.Linear(Builder::As(pixels, {4, 32}), 48);
  program.Add("image", Share(image), 10);

  Builder scores;
  std::vector<srg::TensorView> sides;
  for (int k = 0; k < 2; ++k) {
    const auto side = scores.Bound({4, 48});
    sides.push_back(UnitRows(&scores, side));
  }
  scores.Call("matmul", {sides[0], Builder::Transposed(sides[1])}, {4, 4});
  const auto findings = program.Add("scores", Share(scores), 10);
  EXPECT_EQ(findings[0].meaning.nodes[8].role, "fusion.join");
  const Program::Finding* const again = Find(findings, "image");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[1].role, "fusion.projection");
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kVisionEncoding);
}

Builder ImageAndItsProjection() {
  Builder b;
  const auto pixels = b.Call(
      "conv2d", {b.Bound({4, 3, 8, 8}), b.Bound({32, 3, 8, 8})}, {4, 32, 1, 1});
  b.Linear(Builder::As(pixels, {4, 32}), 48);
  return b;
}

srg::TensorView ProjectedText(Builder* b) {
  const auto text =
      b->Call("embedding", {b->Bound({96, 64}), b->Integers({4})}, {4, 64});
  return b->Linear(text, 48);
}

// Both sides' vectors are ready, and the next piece multiplies them.
TEST(ProgramFusionTest, SidesOfAComparisonInAPieceOfTheirOwn) {
  Program program;
  program.Add("image", Share(ImageAndItsProjection()), 10);
  Builder sides;
  const auto text = ProjectedText(&sides);
  UnitRows(&sides, sides.Bound({4, 48}));
  UnitRows(&sides, text);
  auto findings = program.Add("sides", Share(sides), 10);
  const Meaning& found = findings[0].meaning;
  EXPECT_EQ(found.nodes[0].role, "embedding.look_up");
  for (size_t i = 1; i < found.nodes.size(); ++i) {
    EXPECT_EQ(found.nodes[i].role, "fusion.projection") << i;
    EXPECT_EQ(found.nodes[i].phase, Phase::kMultimodalFusion) << i;
  }
  EXPECT_THAT(RolesOf(*Find(findings, "image")),
              ElementsAre("conv.product", "fusion.projection"));

  Builder product;
  const auto scores = product.Call(
      "matmul",
      {product.Bound({4, 48}), Builder::Transposed(product.Bound({4, 48}))},
      {4, 4});
  product.Call("mul", {scores, product.Bound({})}, {4, 4});
  findings = program.Add("product", Share(product), 10);
  ExpectEach(findings[0].meaning, Phase::kMultimodalFusion, Modality::kFusion);
  EXPECT_EQ(findings[0].meaning.nodes[0].role, "fusion.join");
}

// Each side is scaled in its own piece; the product shows its purpose.
TEST(ProgramFusionTest, AComparisonExplainsTheSidesThatOtherPiecesScaled) {
  Program program;
  Builder image = ImageAndItsProjection();
  const auto pixels = image.Linear(image.Bound({4, 32}), 48);
  UnitRows(&image, pixels);
  auto findings = program.Add("image", Share(image), 10);
  EXPECT_EQ(findings[0].meaning.nodes[6].role, "");

  Builder scores;
  const auto text = UnitRows(&scores, ProjectedText(&scores));
  scores.Call("matmul", {text, Builder::Transposed(scores.Bound({4, 48}))},
              {4, 4});
  findings = program.Add("scores", Share(scores), 10);
  EXPECT_EQ(findings[0].meaning.nodes.back().role, "fusion.join");
  const Program::Finding* const again = Find(findings, "image");
  ASSERT_NE(again, nullptr);
  for (size_t i = 2; i < 7; ++i) {
    EXPECT_EQ(again->meaning.nodes[i].role, "fusion.projection") << i;
  }

  // A product of rows that were not scaled.
  Builder other;
  other.Call("matmul",
             {other.Bound({4, 64}), Builder::Transposed(other.Bound({4, 64}))},
             {4, 4});
  EXPECT_EQ(program.Add("other", Share(other), 10)[0].meaning.nodes[0].role,
            "");
}

// The piece ends between the squares of the text's vectors and their sums.
TEST(ProgramFusionTest, AComparisonWhoseLengthsAreCut) {
  Program program;
  Builder sides = ImageAndItsProjection();
  const auto pixels = sides.Linear(sides.Bound({4, 32}), 48);
  const auto text = ProjectedText(&sides);
  UnitRows(&sides, pixels);
  sides.Call("pow", {text, int64_t{2}}, {4, 48});
  program.Add("sides", Share(sides), 10);

  Builder scores;
  const auto side = scores.Bound({4, 48});
  const auto sum = scores.Call("sum", {scores.Bound({4, 48})}, {4, 1});
  const auto length = scores.Call("sqrt", {sum}, {4, 1});
  const auto unit = scores.Call("div", {side, length}, {4, 48});
  // The temperature that a program has learned.
  const auto scaled = scores.Call("mul", {scores.Bound({}), unit}, {4, 48});
  scores.Call("matmul", {scaled, Builder::Transposed(scores.Bound({4, 48}))},
              {4, 4});
  const auto findings = program.Add("scores", Share(scores), 10);
  ExpectEach(findings[0].meaning, Phase::kMultimodalFusion, Modality::kFusion);
  const Program::Finding* const again = Find(findings, "sides");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[3].role, "embedding.look_up");
  for (const size_t i : {2, 4, 5, 6, 7, 8}) {
    EXPECT_EQ(again->meaning.nodes[i].role, "fusion.projection") << i;
  }
}

// Holds although only an image's tower shows anything beside the mask.
TEST(ProgramFusionTest, MasksOfTokensAreTheTexts) {
  const auto ask = [](Builder* b) {
    const auto mask = b->Bound({2, 7}, srg::DataType::kBool);
    b->Call("all", {mask}, {}, srg::DataType::kBool);
  };
  Program program;
  Builder both;
  both.Call("conv2d", {both.Bound({2, 3, 8, 8}), both.Bound({32, 3, 8, 8})},
            {2, 32, 1, 1});
  both.Call("embedding", {both.Bound({96, 64}), both.Integers({2, 7})},
            {2, 7, 64});
  ask(&both);
  const Meaning first = program.Add("both", Share(both), 10)[0].meaning;
  EXPECT_EQ(first.nodes[2].modality, Modality::kText);
  EXPECT_EQ(first.nodes[2].phase, Phase::kUnspecified);

  Builder alone;
  ask(&alone);
  EXPECT_EQ(program.Add("alone", Share(alone), 10)[0].meaning.nodes[0].modality,
            Modality::kText);
}

// The sound beside the text is encoded by itself.
TEST(ProgramFusionTest, TextBesideASoundWaitsForItsReader) {
  Program program;
  Builder both;
  both.Call("embedding", {both.Bound({96, 64}), both.Integers({1, 23})},
            {1, 23, 64});
  const auto sound =
      both.Call("conv1d", {both.Bound({1, 16, 40}), both.Bound({48, 16, 3})},
                {1, 48, 16});
  both.Call("clone", {sound}, {1, 48, 16});
  const Meaning first = program.Add("both", Share(both), 10)[0].meaning;
  EXPECT_EQ(first.nodes[0].phase, Phase::kUnspecified);
  EXPECT_EQ(first.nodes[1].phase, Phase::kForward);
}

// The rows are reordered before a later piece reads them.
TEST(ProgramFusionTest, RowsThatAProjectionMadeAreStillItsWhenTheyAreMoved) {
  Program program;
  Builder image = PatchesAndProjector(32);
  const auto rows = image.Linear(
      image.Call("gelu", {image.Bound({1, 16, 32})}, {1, 16, 32}), 64);
  image.Call("cat", {Entries{rows, image.Bound({1, 1, 64})}, int64_t{1}},
             {1, 17, 64});
  program.Add("image", Share(image), 10);
  const auto findings = program.Add("join", Share(PutAmongTokens(17)), 10);
  const Program::Finding* const again = Find(findings, "image");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[6].role, "fusion.projection");
}

// A piece between them moves the rows, and joins a part of them with others.
TEST(ProgramFusionTest, RowsThatAProjectionMadeAreFollowedWhereTheyAreMoved) {
  Program program;
  program.Add("image", Share(PatchesAndProjector(32)), 10);
  Builder between;
  auto part = between.Bound({1, 16, 64});
  part.sizes.assign({8, 64});
  part.strides.assign({64, 1});
  part.storage_offset = 8 * 64;
  const auto moved = between.Call("clone", {part}, {8, 64});
  between.Call("cat", {Entries{moved, between.Bound({1, 64})}, int64_t{0}},
               {9, 64});
  program.Add("between", Share(between), 10);
  const auto findings = program.Add("join", Share(PutAmongTokens(9)), 10);
  EXPECT_THAT(
      RolesOf(*Find(findings, "image")),
      ElementsAre("embedding.patches", "norm.whole", "fusion.projection",
                  "fusion.projection", "fusion.projection"));
}

// The run decides how many of the projected rows a mask selects.
TEST(ProgramFusionTest, RowsThatAMaskTakesOfAProjection) {
  for (const int64_t rows : {12, 16, 17}) {
    Program program;
    Builder image = PatchesAndProjector(32);
    const auto projected = image.Linear(
        image.Call("gelu", {image.Bound({1, 16, 32})}, {1, 16, 32}), 64);
    image.CallUnknown(
        "index",
        {projected, Entries{image.Bound({1, 16}, srg::DataType::kBool)}});
    program.Add("image", Share(image), 10);
    const auto findings = program.Add("join", Share(PutAmongTokens(rows)), 10);
    const Program::Finding* const again = Find(findings, "image");
    if (rows > 16) {
      EXPECT_TRUE(again == nullptr ||
                  again->meaning.nodes[6].role != "fusion.projection");
      continue;
    }
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->meaning.nodes[6].role, "fusion.projection");
  }
}

}  // namespace
}  // namespace djinn::semantics
