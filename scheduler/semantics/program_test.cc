#include "scheduler/semantics/program.h"

#include "gtest/gtest.h"
#include "scheduler/semantics/testing.h"

namespace djinn::semantics {
namespace {

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

}  // namespace
}  // namespace djinn::semantics
