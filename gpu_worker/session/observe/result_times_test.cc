#include "gpu_worker/session/observe/result_times.h"

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr v1::Phase kPrompt = v1::PHASE_LLM_PREFILL;
constexpr v1::Phase kToken = v1::PHASE_LLM_DECODE;
constexpr v1::Phase kUnknown = v1::PHASE_UNSPECIFIED;
constexpr absl::Duration Of(int seconds) { return absl::Seconds(seconds); }

// Notes a run of a graph that was executed before, or of a new one.
void Note(ResultTimes* times, v1::Phase phase, absl::Duration arrived) {
  EXPECT_FALSE(times->NoteRun(phase, arrived, /*first=*/false).has_value());
}
void NoteNew(ResultTimes* times, v1::Phase phase, absl::Duration arrived) {
  EXPECT_FALSE(times->NoteRun(phase, arrived, /*first=*/true).has_value());
}

TEST(ResultTimesTest, TheFirstCountsFromThePromptAndOthersFromEachOther) {
  ResultTimes times;
  Note(&times, kPrompt, Of(10));
  ASSERT_TRUE(times.expects_result());
  std::optional<ResultTimes::Result> result = times.NoteResult(Of(13));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->first);
  EXPECT_EQ(result->took, Of(3));
  Note(&times, kToken, Of(13));
  result = times.NoteResult(Of(15));
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->first);
  EXPECT_EQ(result->took, Of(2));
}

TEST(ResultTimesTest, APromptMayBeSeveralRuns) {
  ResultTimes times;
  Note(&times, kPrompt, Of(1));
  Note(&times, kPrompt, Of(2));
  Note(&times, kToken, Of(3));
  EXPECT_EQ(times.NoteResult(Of(4))->took, Of(3));
}

TEST(ResultTimesTest, ReadWithoutARunIsNoResult) {
  ResultTimes times;
  EXPECT_FALSE(times.expects_result());
  Note(&times, kToken, Of(1));
  // It is not known when the result was requested.
  EXPECT_FALSE(times.NoteResult(Of(2)).has_value());
  EXPECT_FALSE(times.expects_result());
  Note(&times, kToken, Of(2));
  EXPECT_EQ(times.NoteResult(Of(5))->took, Of(3));
}

TEST(ResultTimesTest, OtherRunsEndIt) {
  ResultTimes times;
  Note(&times, kPrompt, Of(1));
  Note(&times, v1::PHASE_FORWARD, Of(2));
  EXPECT_FALSE(times.expects_result());
  Note(&times, kToken, Of(3));
  EXPECT_FALSE(times.NoteResult(Of(4)).has_value());
  Note(&times, v1::PHASE_TRAINING, Of(5));
  Note(&times, kToken, Of(6));
  EXPECT_FALSE(times.NoteResult(Of(7)).has_value());
}

TEST(ResultTimesTest, RunOfAnUnknownPhaseEndsNothing) {
  ResultTimes times;
  Note(&times, kPrompt, Of(1));
  // It chooses the token.
  Note(&times, kUnknown, Of(2));
  ASSERT_TRUE(times.expects_result());
  EXPECT_EQ(times.NoteResult(Of(4))->took, Of(3));
  Note(&times, kToken, Of(4));
  Note(&times, kUnknown, Of(5));
  EXPECT_EQ(times.NoteResult(Of(6))->took, Of(2));
}

TEST(ResultTimesTest, PromptOfAnUnknownPhaseCountsOnceTokensFollow) {
  ResultTimes times;
  NoteNew(&times, kUnknown, Of(1));
  ASSERT_TRUE(times.expects_result());
  EXPECT_FALSE(times.NoteResult(Of(4)).has_value());
  EXPECT_FALSE(times.expects_result());
  const auto first = times.NoteRun(kToken, Of(5), /*first=*/false);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->first);
  EXPECT_EQ(first->took, Of(3));
  const auto next = times.NoteResult(Of(6));
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(next->first);
  EXPECT_EQ(next->took, Of(2));
  Note(&times, kToken, Of(7));
}

TEST(ResultTimesTest, DecodingGraphMayBeUnknownAtItsFirstTokens) {
  ResultTimes times;
  NoteNew(&times, kUnknown, Of(1));
  EXPECT_FALSE(times.NoteResult(Of(4)).has_value());
  NoteNew(&times, kUnknown, Of(5));
  EXPECT_FALSE(times.expects_result());
  EXPECT_EQ(times.NoteRun(kToken, Of(8), /*first=*/false)->took, Of(3));
}

TEST(ResultTimesTest, OnlyANewGraphBehindAResultMayBeAPrompt) {
  ResultTimes times;
  // An old graph stays unknown for good.
  Note(&times, kUnknown, Of(1));
  EXPECT_FALSE(times.expects_result());
  // A new one is part of the generation while its result was not read.
  Note(&times, kToken, Of(2));
  NoteNew(&times, kUnknown, Of(3));
  EXPECT_FALSE(times.NoteResult(Of(4)).has_value());
  Note(&times, kToken, Of(5));
  EXPECT_FALSE(times.NoteResult(Of(6))->first);
  // Nothing is read behind this one.
  NoteNew(&times, kUnknown, Of(7));
  Note(&times, kToken, Of(8));
  EXPECT_FALSE(times.NoteResult(Of(9))->first);
  // No token follows this one.
  NoteNew(&times, kUnknown, Of(10));
  EXPECT_FALSE(times.NoteResult(Of(11)).has_value());
  Note(&times, v1::PHASE_FORWARD, Of(12));
  Note(&times, kToken, Of(13));
}

TEST(ResultTimesTest, NextPromptRestartsTheTimes) {
  ResultTimes times;
  Note(&times, kPrompt, Of(1));
  times.NoteResult(Of(2));
  Note(&times, kPrompt, Of(60));
  const auto result = times.NoteResult(Of(61));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->first);
  EXPECT_EQ(result->took, Of(1));
}

}  // namespace
}  // namespace djinn::worker
