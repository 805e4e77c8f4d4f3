#include "scheduler/semantics/analysis/program.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/program_testing.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using ::testing::ElementsAre;

Builder Activation(int64_t tokens) {
  Builder b;
  b.Call("relu", {b.Bound({1, tokens, 128})}, {1, tokens, 128});
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
  // The finding is reported once.
  EXPECT_EQ(program.Add("c", Share(WithCache(5)), 10).size(), 1u);
}

TEST(ProgramTest, LargePiecesAreNotKept) {
  Program program;
  program.Add("a", Share(LookUp(5)), uint64_t{1} << 21);
  EXPECT_EQ(program.Add("b", Share(WithCache(5)), 10).size(), 1u);
}

TEST(ProgramTest, CertainModalityStays) {
  Program program;
  // The phase is unknown, so that the graph is analyzed again; the modality is
  // known.
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

// Joins rows from before the run.
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

TEST(ProgramTest, RowsOfEarlierPiecesAreJoined) {
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
  // The joined values were encoded before.
  const Program::Finding* const again = Find(findings, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->meaning.nodes[0].phase, Phase::kForward);
  EXPECT_EQ(again->meaning.nodes[2].phase, Phase::kVisionEncoding);

  // The same holds for what follows, in a piece of its own.
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

TEST(ProgramTest, InputThatNoGraphMadeIsNoFusion) {
  Program program;
  program.Add("a", Share(TextAndPatches()), 10);
  const auto findings =
      program.Add("b", Share(JoinRows({1, 9, 64}, {1, 16, 64})), 10);
  EXPECT_EQ(findings[0].meaning.nodes[0].role, "");
  EXPECT_EQ(findings[0].meaning.modality, Modality::kVision);
}

// Expects that behind a model of texts, an image's patches that are joined with
// vectors of `sizes` are no fusion. The vectors may be weights. `role` is the
// role of the join.
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

TEST(ProgramTest, TokensReadInTheirOwnGraphAreNotLeft) {
  Builder texts;
  const auto tokens = texts.Call(
      "embedding", {texts.Bound({96, 64}), texts.Integers({1, 7})}, {1, 7, 64});
  texts.Linear(tokens, 32);
  ExpectNoFusion(texts, {1, 7, 64});
}

TEST(ProgramTest, AnImagesClassVectorIsNoTextOfAnotherModel) {
  // One model ends with a vector per text, the other with a vector for its only
  // token.
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

TEST(ProgramTest, LaterPiecesJoinNothingBefore) {
  Program program;
  Builder text;
  text.Call("embedding", {text.Bound({96, 64}), text.Integers({1, 7})},
            {1, 7, 64});
  program.Add("a", Share(text), 10);
  // Weights of its own precede the tokens.
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
  // Both sizes are made and read elsewhere, and the rest of the piece is
  // explained.
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

// Returns `count` pairs of integers, or one column of them.
srg::TensorView Places(Builder* b, int64_t count) {
  return b->Integers({count, 2});
}
srg::TensorView Column(srg::TensorView places, int64_t which) {
  places.sizes = {places.sizes[0]};
  places.strides = {2};
  places.storage_offset = which;
  return places;
}

TEST(ProgramTest, RowsThatAnEmbeddingLeftAreStillItsWhenTheyAreMoved) {
  // Patches are picked by their positions, behind a class vector, and position
  // embeddings are added.
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
  // Nothing is known about rows that no embedding left.
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

// Gathers rows by one column of the indices that nonzero found, in both
// layouts.
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

// Makes queries, keys and values of tokens, which no node uses yet.
Builder UpToHeads() {
  Builder b;
  const auto x =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 5})}, {1, 5, 64});
  b.Linear(x, 64);
  b.Linear(x, 64);
  b.Linear(x, 64);
  return b;
}

// Continues from there; with a cache, earlier keys and values come first.
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
