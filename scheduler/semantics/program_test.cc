#include "scheduler/semantics/program.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const srg::Structure> Share(const Builder& builder) {
  return std::make_shared<srg::Structure>(builder.structure());
}

// Rows of a token's vector; `tokens` of them.
Builder LookUp(int64_t tokens) {
  Builder b;
  b.Call("embedding", {b.Bound({96, 128}), b.Integers({1, tokens})},
         {1, tokens, 128});
  return b;
}

Builder Activation(int64_t tokens) {
  Builder b;
  b.Call("relu", {b.Bound({1, tokens, 128})}, {1, tokens, 128});
  return b;
}

Builder WithCache(int64_t tokens) {
  Builder b;
  const auto x = b.Call("relu", {b.Bound({1, tokens, 128})}, {1, tokens, 128});
  const auto k = b.Linear(x, 128);
  b.Call("cat",
         {std::vector<srg::TensorListEntry>{b.Bound({0}),
                                            Builder::As(k, {1, 4, tokens, 32})},
          int64_t{-2}},
         {1, 4, tokens, 32});
  return b;
}

TEST(ProgramTest, APieceInheritsFromTheOneBefore) {
  Program program;
  EXPECT_EQ(program.Add("a", Share(LookUp(1)), 10)[0].meaning.phase,
            Phase::kLlmDecode);
  const auto findings = program.Add("b", Share(Activation(1)), 10);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].meaning.phase, Phase::kLlmDecode);
  EXPECT_EQ(findings[0].meaning.modality, Modality::kText);
}

TEST(ProgramTest, ALaterPieceExplainsAnEarlierOne) {
  Program program;
  EXPECT_EQ(program.Add("a", Share(LookUp(5)), 10)[0].meaning.phase,
            Phase::kUnspecified);
  const auto findings = program.Add("b", Share(WithCache(5)), 10);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].name, "b");
  EXPECT_EQ(findings[0].meaning.phase, Phase::kLlmPrefill);
  EXPECT_EQ(findings[1].name, "a");
  EXPECT_EQ(findings[1].meaning.phase, Phase::kLlmPrefill);
  // It is told once.
  EXPECT_EQ(program.Add("c", Share(WithCache(5)), 10).size(), 1u);
}

TEST(ProgramTest, LargePiecesAreNotKept) {
  Program program;
  program.Add("a", Share(LookUp(5)), uint64_t{1} << 21);
  EXPECT_EQ(program.Add("b", Share(WithCache(5)), 10).size(), 1u);
}

TEST(ProgramTest, WhatWasCertainStays) {
  Program program;
  // Of unknown phase, so that it is looked at again; its modality is known.
  program.Add("a", Share(LookUp(5)), 10);
  Builder image;
  const auto y = image.Call(
      "conv2d", {image.Bound({1, 3, 8, 8}), image.Bound({10, 3, 1, 1})},
      {1, 10, 8, 8});
  image.Call("relu", {Builder::As(y, {1, 5, 128})}, {1, 5, 128});
  program.Add("b", Share(image), 10);
  const auto findings = program.Add("c", Share(Activation(5)), 10);
  for (const auto& finding : findings) {
    if (finding.name == "a") {
      EXPECT_EQ(finding.meaning.modality, Modality::kText);
    }
  }
  EXPECT_EQ(findings[0].meaning.modality, Modality::kVision);
}

// Rows of seven tokens, and 16 patches of an image, for another structure.
Builder TextAndPatches() {
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 7})}, {1, 7, 64});
  b.Call("layer_norm", {tokens, std::vector<int64_t>{64}, b.Bound({64})},
         {1, 7, 64});
  b.Call("conv2d",
         {b.Bound({1, 3, 16, 16}), b.Bound({64, 3, 4, 4}), std::monostate(),
          std::vector<int64_t>{4, 4}},
         {1, 64, 4, 4});
  return b;
}

using Entries = std::vector<srg::TensorListEntry>;

// Of what was there before.
Builder JoinRows(Shape first, Shape second) {
  Builder b;
  const int64_t rows = first[1] + second[1], width = first[2];
  const auto x =
      b.Call("cat",
             {Entries{b.Bound(std::move(first)), b.Bound(std::move(second))},
              int64_t{1}},
             {1, rows, width});
  b.Linear(x, width);
  return b;
}

const Program::Finding* Find(const std::vector<Program::Finding>& findings,
                             const std::string& name) {
  for (const Program::Finding& finding : findings) {
    if (finding.name == name) return &finding;
  }
  return nullptr;
}

void ExpectEach(const Meaning& meaning, Phase phase, Modality modality) {
  for (const NodeMeaning& node : meaning.nodes) {
    EXPECT_EQ(node.phase, phase);
    EXPECT_EQ(node.modality, modality);
  }
}

TEST(ProgramTest, WhatOtherPiecesLeftIsJoined) {
  Program program;
  const Meaning first =
      program.Add("a", Share(TextAndPatches()), 10)[0].meaning;
  // Text is not encoded with the image that happens to be beside it.
  EXPECT_EQ(first.nodes[0].modality, Modality::kText);
  EXPECT_EQ(first.nodes[0].phase, Phase::kUnspecified);
  EXPECT_EQ(first.nodes[2].phase, Phase::kVisionEncoding);

  auto findings =
      program.Add("b", Share(JoinRows({1, 7, 64}, {1, 16, 64})), 10);
  const Meaning& join = findings[0].meaning;
  EXPECT_EQ(join.nodes[0].role, "fusion.join");
  ExpectEach(join, Phase::kMultimodalFusion, Modality::kFusion);
  EXPECT_EQ(join.workload_class, WorkloadClass::kMultimodal);
  // What is joined was encoded before.
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kForward);
  EXPECT_EQ(again->meaning.nodes[2].phase, Phase::kVisionEncoding);

  // And so is what follows, in a piece of its own.
  Builder behind;
  behind.Linear(behind.Bound({1, 23, 64}), 128);
  findings = program.Add("c", Share(behind), 10);
  ExpectEach(findings[0].meaning, Phase::kMultimodalFusion, Modality::kFusion);
}

TEST(ProgramTest, RowsOfOneKindAreNoFusion) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  const Builder join = JoinRows({1, 7, 64}, {1, 7, 64});
  const auto findings = program.Add("b", Share(join), 10);
  EXPECT_EQ(findings[0].meaning.nodes[0].role, "");
  EXPECT_EQ(findings[0].meaning.modality, Modality::kText);
}

TEST(ProgramTest, WhatNobodyMadeIsNoFusion) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  const auto findings =
      program.Add("b", Share(JoinRows({1, 9, 64}, {1, 16, 64})), 10);
  EXPECT_EQ(findings[0].meaning.nodes[0].role, "");
  EXPECT_EQ(findings[0].meaning.modality, Modality::kVision);
}

// Behind a model of texts, an image's patches join vectors of `sizes`, which
// may be weights of their own. `role` is what that is found to do.
void ExpectNoFusion(const Builder& texts, Shape sizes,
                    const std::string& role = "") {
  Program program;
  EXPECT_EQ(program.Add("texts", Share(texts), 10)[0].meaning.modality,
            Modality::kText);
  Builder image;
  image.Call("conv2d",
             {image.Bound({1, 3, 16, 16}), image.Bound({64, 3, 4, 4}),
              std::monostate(), std::vector<int64_t>{4, 4}},
             {1, 64, 4, 4});
  program.Add("image", Share(image), 10);
  const Builder join = JoinRows(std::move(sizes), {1, 16, 64});
  const Meaning meaning = program.Add("join", Share(join), 10)[0].meaning;
  EXPECT_EQ(meaning.nodes[0].role, role);
  EXPECT_NE(meaning.modality, Modality::kFusion);
}

TEST(ProgramTest, WhatItsOwnStructureReadIsNotLeft) {
  Builder texts;
  const auto tokens = texts.Call(
      "embedding", {texts.Bound({96, 64}), texts.Integers({1, 7})}, {1, 7, 64});
  texts.Linear(tokens, 32);
  ExpectNoFusion(texts, {1, 7, 64});
}

TEST(ProgramTest, AnImagesClassVectorIsNoTextOfAnotherModel) {
  // One ends with a vector a text, the other with one for its only token.
  for (const Shape& last : {Shape{1, 64}, Shape{1, 1, 64}}) {
    Builder texts;
    const auto tokens =
        texts.Call("embedding", {texts.Bound({96, 64}), texts.Integers({1, 7})},
                   {1, 7, 64});
    texts.Call("mean", {tokens, std::vector<int64_t>{1}}, last);
    ExpectNoFusion(texts, {1, 1, 64}, "embedding.positions");
  }
}

TEST(ProgramTest, OneProductOfCrossAttentionIsNoFusion) {
  Program program;
  Builder ends;
  ends.Call("embedding", {ends.Bound({96, 64}), ends.Integers({4, 7})},
            {4, 7, 64});
  ends.Call(
      "conv1d",
      {ends.Bound({4, 16, 40}), ends.Bound({64, 16, 3}), std::monostate()},
      {4, 64, 20});
  program.Add("a", Share(ends), 10);
  Builder scores;
  scores.Call("bmm", {scores.Bound({4, 7, 64}), scores.Bound({4, 64, 20})},
              {4, 7, 20});
  const Meaning meaning = program.Add("b", Share(scores), 10)[0].meaning;
  EXPECT_EQ(meaning.nodes[0].role, "");
  EXPECT_NE(meaning.modality, Modality::kFusion);
}

TEST(ProgramTest, KindsAddedToAnImagesRowsAreNoText) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  Builder b;
  const auto kinds =
      b.Call("embedding", {b.Bound({2, 64}), b.Integers({1, 16})}, {1, 16, 64});
  b.Call("add", {b.Bound({1, 16, 64}), kinds}, {1, 16, 64});
  const Meaning meaning = program.Add("b", Share(b), 10)[0].meaning;
  ExpectEach(meaning, Phase::kVisionEncoding, Modality::kVision);
}

TEST(ProgramTest, TokensThatLookAtASoundAreText) {
  Program program;
  Builder sound;
  const auto waves =
      sound.Call("conv1d", {sound.Bound({1, 16, 20}), sound.Bound({64, 16, 3})},
                 {1, 64, 20});
  sound.Linear(Builder::As(waves, {1, 20, 64}), 64);
  program.Add("a", Share(sound), 10);
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 7})}, {1, 7, 64});
  const auto memory = b.Bound({1, 20, 64});
  const auto q = b.Linear(tokens, 64);
  const auto k = b.Linear(memory, 64), v = b.Linear(memory, 64);
  const auto y =
      b.Call("scaled_dot_product_attention",
             {Builder::As(q, {1, 4, 7, 16}), Builder::As(k, {1, 4, 20, 16}),
              Builder::As(v, {1, 4, 20, 16})},
             {1, 4, 7, 16});
  b.Call("add", {tokens, b.Linear(Builder::As(y, {1, 7, 64}), 64)}, {1, 7, 64});
  const Meaning meaning = program.Add("b", Share(b), 10)[0].meaning;
  EXPECT_EQ(meaning.nodes.front().modality, Modality::kText);
  EXPECT_EQ(meaning.nodes.back().modality, Modality::kText);
}

TEST(ProgramTest, WhatLaterPiecesLeaveJoinsNothingBefore) {
  Program program;
  Builder text;
  text.Call("embedding", {text.Bound({96, 64}), text.Integers({1, 7})},
            {1, 7, 64});
  program.Add("a", Share(text), 10);
  // Weights of its own, put before the tokens.
  program.Add("b", Share(JoinRows({1, 16, 64}, {1, 7, 64})), 10);
  program.Add("c", Share(TextAndPatches()), 10);
  Builder cache;
  const auto keys = cache.Linear(cache.Bound({1, 23, 64}), 64);
  cache.Call("cat",
             {Entries{cache.Bound({0}), Builder::As(keys, {1, 4, 23, 16})},
              int64_t{-2}},
             {1, 4, 23, 16});
  const auto findings = program.Add("d", Share(cache), 10);
  const Program::Finding* const again = Find(findings, "b");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].role, "");
  ExpectEach(again->meaning, Phase::kLlmPrefill, Modality::kText);
}

TEST(ProgramTest, AJoinStaysWhenItIsLookedAtAgain) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  Builder join = JoinRows({1, 7, 64}, {1, 16, 64});
  const auto rows = join.Call(
      "embedding", {join.Bound({96, 32}), join.Integers({1, 5})}, {1, 5, 32});
  join.Call("relu", {rows}, {1, 5, 32});
  EXPECT_EQ(program.Add("b", Share(join), 10)[0].meaning.nodes[3].phase,
            Phase::kUnspecified);
  // Both sizes are made and read elsewhere, and the rest of it is explained.
  Builder later;
  for (const Shape& sizes : {Shape{1, 7, 64}, Shape{1, 16, 64}}) {
    const auto x = later.Call("relu", {later.Bound({1, 3, 3, 3})}, sizes);
    later.Linear(x, 8);
  }
  const auto keys = later.Linear(later.Bound({1, 5, 32}), 32);
  later.Call(
      "cat",
      {Entries{later.Bound({0}), Builder::As(keys, {1, 4, 5, 8})}, int64_t{-2}},
      {1, 4, 5, 8});
  const auto findings = program.Add("c", Share(later), 10);
  const Program::Finding* const again = Find(findings, "b");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[3].phase, Phase::kLlmPrefill);
  EXPECT_EQ(again->meaning.nodes[0].role, "fusion.join");
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kMultimodalFusion);
}

// Patches of an image, and a projector of them.
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

// Rows of their own in the places that tokens keep for them.
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

std::vector<std::string> RolesOf(const Program::Finding* finding) {
  std::vector<std::string> roles;
  if (finding == nullptr) return roles;
  for (const NodeMeaning& node : finding->meaning.nodes) {
    roles.push_back(node.role);
  }
  return roles;
}

// Whether they keep the width or look like an MLP, and though the rows were
// copied since.
TEST(ProgramTest, ProjectionsToAJoinInALaterPieceAreAFusion) {
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
        RolesOf(again),
        ElementsAre("embedding.patches", "norm.whole", "fusion.projection",
                    "fusion.projection", "fusion.projection"));
    EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kVisionEncoding);
    EXPECT_EQ(again->meaning.nodes[2].phase, Phase::kMultimodalFusion);
    EXPECT_EQ(again->meaning.nodes[4].modality, Modality::kFusion);
    // It is told once.
    EXPECT_EQ(Find(program.Add("d", Share(CopyOf({16, 64})), 10), "a"),
              nullptr);

    // The same projector, cut off elsewhere.
    Builder other;
    other.Linear(other.Bound({1, 16, 64}), 64);
    findings = program.Add("e", Share(other), 10);
    EXPECT_EQ(findings[0].meaning.nodes[0].role, "fusion.projection");
  }
}

// It looks like a query's: a norm is before it, and nothing behind.
TEST(ProgramTest, AProjectionOfItsWidthToAJoinInALaterPieceIsAFusion) {
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

// The text's beside the join, the image's in the piece before.
TEST(ProgramTest, ProjectionsOfBothSidesToACatAreAFusion) {
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

// Neighbours are put together before it.
TEST(ProgramTest, ANormWithinAProjectorIsOfTheFusion) {
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
  EXPECT_THAT(RolesOf(again), ElementsAre("embedding.patches", "norm.whole",
                                          "fusion.projection", "norm.whole",
                                          "fusion.projection"));
  EXPECT_EQ(again->meaning.nodes[3].phase, Phase::kMultimodalFusion);
  EXPECT_EQ(again->meaning.nodes[1].phase, Phase::kVisionEncoding);
}

// Right behind an encoder: the beginning, as the cache says later.
TEST(ProgramTest, TheFirstTokenOfADecoderIsNoStep) {
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

// What a language model makes of positions before its first cache, and the text
// that was looked up before the join.
TEST(ProgramTest, WhatIsBesideRowsAmongTokensIsTheLanguageModels) {
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

TEST(ProgramTest, ProjectionsThatNoJoinReadsAreNoFusion) {
  // Rows of another number are none of its, nor what came behind it.
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

// What both sides' vectors are made of may be in different pieces.
// Rows divided by their lengths.
srg::TensorView UnitRows(Builder* b, const srg::TensorView& side) {
  const Shape sizes(side.sizes.begin(), side.sizes.end());
  const auto sum = b->Call("sum", {b->Call("pow", {side, int64_t{2}}, sizes)},
                           {sizes[0], 1});
  const auto length = b->Call("sqrt", {sum}, {sizes[0], 1});
  return b->Call("div", {side, length}, sizes);
}

TEST(ProgramTest, ProjectionsToAComparisonInALaterPieceAreAFusion) {
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

// Both sides' vectors are ready, and their product is the next piece's.
TEST(ProgramTest, SidesOfAComparisonInAPieceOfTheirOwn) {
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
  EXPECT_THAT(RolesOf(Find(findings, "image")),
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

// Each side is scaled in its own piece: what it is for shows the product.
TEST(ProgramTest, AComparisonExplainsTheSidesThatOtherPiecesScaled) {
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

  // A product of what nobody scaled.
  Builder other;
  other.Call("matmul",
             {other.Bound({4, 64}), Builder::Transposed(other.Bound({4, 64}))},
             {4, 4});
  EXPECT_EQ(program.Add("other", Share(other), 10)[0].meaning.nodes[0].role,
            "");
}

// The piece ends between the squares of the text's vectors and their sums.
TEST(ProgramTest, AComparisonWhoseLengthsAreCut) {
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
  // As large as a program has learnt.
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

// Though an image's tower is all that shows something beside it.
TEST(ProgramTest, MasksOfTokensAreTheTexts) {
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

// Sound beside it is encoded by itself.
TEST(ProgramTest, TextBesideASoundWaitsForItsReader) {
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

// Rows that are put in another order before a later piece reads them.
TEST(ProgramTest, RowsThatAProjectionMadeAreStillItsWhenTheyAreMoved) {
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

// In a piece between them, where a part of them is joined with others.
TEST(ProgramTest, RowsThatAProjectionMadeAreFollowedWhereTheyAreMoved) {
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
      RolesOf(Find(findings, "image")),
      ElementsAre("embedding.patches", "norm.whole", "fusion.projection",
                  "fusion.projection", "fusion.projection"));
}

// How many rows a mask leaves of a projection's the run decides.
TEST(ProgramTest, RowsThatAMaskTakesOfAProjection) {
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

TEST(ProgramTest, TextThatALanguageModelReadsBehindAJoinIsItsPrefill) {
  Program program;
  EXPECT_EQ(
      program.Add("a", Share(TextAndPatches()), 10)[0].meaning.nodes[0].phase,
      Phase::kUnspecified);
  Builder b;
  const auto x =
      b.Call("masked_scatter",
             {b.Bound({1, 7, 64}), b.Bound({1, 7, 64}, srg::DataType::kBool),
              b.Bound({1, 16, 64})},
             {1, 7, 64});
  const auto keys = b.Linear(x, 64);
  b.Call("cat",
         {Entries{b.Bound({0}), Builder::As(keys, {1, 4, 7, 16})}, int64_t{-2}},
         {1, 4, 7, 16});
  const auto findings = program.Add("b", Share(b), 10);
  EXPECT_EQ(findings[0].meaning.nodes[0].phase, Phase::kMultimodalFusion);
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kLlmPrefill);
  EXPECT_EQ(again->meaning.nodes[2].phase, Phase::kVisionEncoding);
}

// Two numbers a place, `count` of them, and either of the two.
srg::TensorView Places(Builder* b, int64_t count) {
  return b->Integers({count, 2});
}
srg::TensorView Column(srg::TensorView places, int64_t which) {
  places.sizes = {places.sizes[0]};
  places.strides = {2};
  places.storage_offset = which;
  return places;
}

std::vector<std::string> RolesOf(const Program::Finding& finding) {
  std::vector<std::string> roles;
  for (const NodeMeaning& node : finding.meaning.nodes) {
    roles.push_back(node.role);
  }
  return roles;
}

TEST(ProgramTest, RowsThatAnEmbeddingLeftAreStillItsWhenTheyAreMoved) {
  // Patches picked by their places, behind a class vector, with positions.
  Builder b;
  const auto places = Places(&b, 16);
  const auto picked = b.Call(
      "index",
      {b.Bound({1, 16, 64}), Entries{Column(places, 0), Column(places, 1)}},
      {16, 64});
  const auto rows =
      b.Call("cat",
             {Entries{b.Bound({1, 1, 64}), Builder::As(picked, {1, 16, 64})},
              int64_t{1}},
             {1, 17, 64});
  const auto sum = b.Call("add", {rows, rows}, {1, 17, 64});
  b.Linear(sum, 64);
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  EXPECT_THAT(
      RolesOf(program.Add("b", Share(b), 10)[0]),
      ::testing::ElementsAre("embedding.positions", "embedding.positions",
                             "embedding.positions", ""));
  // Of rows that nobody left, nothing is known.
  Program other;
  EXPECT_THAT(RolesOf(other.Add("b", Share(b), 10)[0]), ::testing::Each(""));
}

TEST(ProgramTest, RowsThatAnEmbeddingLeftAreStillItsTimesANumber) {
  Builder b;
  b.Call("mul", {b.Bound({1, 16, 64}), 8.0}, {1, 16, 64});
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  EXPECT_THAT(RolesOf(program.Add("b", Share(b), 10)[0]),
              ::testing::ElementsAre("embedding.positions"));
}

TEST(ProgramTest, PlacesAreChosenWhereImagesAreCutIntoPatches) {
  Builder b;
  const auto places = Places(&b, 16);
  const auto own = b.Call("eq", {Column(places, 0), b.Integers({})}, {16},
                          srg::DataType::kBool);
  b.Call("index", {places, Entries{own}}, {9, 2}, srg::DataType::kInt64);
  b.Call("le", {b.Integers({}), int64_t{0}}, {}, srg::DataType::kBool);
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  EXPECT_THAT(RolesOf(program.Add("b", Share(b), 10)[0]),
              ::testing::Each("embedding.places"));
  Program other;
  EXPECT_THAT(RolesOf(other.Add("b", Share(b), 10)[0]), ::testing::Each(""));
}

// Rows taken by one column of the places that nonzero found, and the last of
// these places.
Builder GatherRows() {
  Builder b;
  for (const int64_t stride : {1, 2}) {
    auto rows = Column(Places(&b, 3), 1);
    rows.strides = {stride};
    rows.storage_offset = stride == 1 ? 3 : 1;
    b.Call("index", {b.Bound({10, 16}), Entries{rows}}, {3, 16});
  }
  b.Call("nonzero", {b.Integers({2, 10})}, {3, 2}, srg::DataType::kInt64);
  return b;
}

TEST(ProgramTest, PiecesOfExpertsAreThoseOfAProgramWithARouter) {
  Program other;
  EXPECT_THAT(RolesOf(other.Add("a", Share(GatherRows()), 10)[0]),
              ::testing::Each(""));
  Program program;
  Builder router;
  const auto shares = router.Call(
      "softmax", {router.Bound({10, 4}), int64_t{-1}, std::monostate()},
      {10, 4});
  router.Call("topk", {shares, int64_t{2}}, {10, 2});
  program.Add("a", Share(router), 10);
  EXPECT_THAT(RolesOf(program.Add("b", Share(GatherRows()), 10)[0]),
              ::testing::Each("moe.dispatch"));
}

// Tokens, and queries, keys and values of them that nobody uses yet.
Builder UpToHeads() {
  Builder b;
  const auto x =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 5})}, {1, 5, 64});
  b.Linear(x, 64);
  b.Linear(x, 64);
  b.Linear(x, 64);
  return b;
}

// What comes behind; earlier keys and values come first when it has a cache.
Builder FromHeads(bool has_cache) {
  Builder b;
  const Shape heads = {1, 4, 5, 16};
  const auto q = b.Bound(heads);
  auto k = b.Bound(heads), v = b.Bound(heads);
  if (has_cache) {
    k = b.Call("cat", {Entries{b.Bound({0}), k}, int64_t{-2}}, heads);
    v = b.Call("cat", {Entries{b.Bound({0}), v}, int64_t{-2}}, heads);
  }
  const auto y = b.Call("scaled_dot_product_attention", {q, k, v}, heads);
  b.Linear(Builder::As(y, {1, 5, 64}), 64);
  return b;
}

TEST(ProgramTest, ProjectionsAreWhatTheAttentionBehindThemIs) {
  for (const bool has_cache : {true, false}) {
    const Phase phase = has_cache ? Phase::kLlmPrefill : Phase::kForward;
    Program program;
    const auto first = program.Add("a", Share(UpToHeads()), 10);
    EXPECT_EQ(first[0].meaning.nodes[1].role, "attention.projection");
    ExpectEach(first[0].meaning, Phase::kUnspecified, Modality::kText);
    const auto findings = program.Add("b", Share(FromHeads(has_cache)), 10);
    ExpectEach(findings[0].meaning, phase, Modality::kText);
    const Program::Finding* const again = Find(findings, "a");
    ASSERT_NE(again, nullptr);
    ExpectEach(again->meaning, phase, Modality::kText);
  }
}

}  // namespace
}  // namespace djinn::semantics
