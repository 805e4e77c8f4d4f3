#include "gpu_worker/session/observe/result_times.h"

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr v1::Phase kPrompt = v1::PHASE_LLM_PREFILL;
constexpr v1::Phase kToken = v1::PHASE_LLM_DECODE;
constexpr absl::Duration Of(int seconds) { return absl::Seconds(seconds); }

TEST(ResultTimesTest, TheFirstCountsFromThePromptAndOthersFromEachOther) {
  ResultTimes times;
  times.NoteRun(kPrompt, Of(10));
  ASSERT_TRUE(times.expects_result());
  std::optional<ResultTimes::Result> result = times.NoteResult(Of(13));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->first);
  EXPECT_EQ(result->took, Of(3));
  times.NoteRun(kToken, Of(13));
  result = times.NoteResult(Of(15));
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->first);
  EXPECT_EQ(result->took, Of(2));
}

TEST(ResultTimesTest, APromptMayBeSeveralRuns) {
  ResultTimes times;
  times.NoteRun(kPrompt, Of(1));
  times.NoteRun(kPrompt, Of(2));
  times.NoteRun(kToken, Of(3));
  EXPECT_EQ(times.NoteResult(Of(4))->took, Of(3));
}

TEST(ResultTimesTest, ReadWithoutARunIsNoResult) {
  ResultTimes times;
  EXPECT_FALSE(times.expects_result());
  times.NoteRun(kToken, Of(1));
  // It is not known when the result was requested.
  EXPECT_FALSE(times.NoteResult(Of(2)).has_value());
  EXPECT_FALSE(times.expects_result());
  times.NoteRun(kToken, Of(2));
  EXPECT_EQ(times.NoteResult(Of(5))->took, Of(3));
}

TEST(ResultTimesTest, OtherRunsEndIt) {
  ResultTimes times;
  times.NoteRun(kPrompt, Of(1));
  times.NoteRun(v1::PHASE_UNSPECIFIED, Of(2));
  EXPECT_FALSE(times.expects_result());
  times.NoteRun(kToken, Of(3));
  EXPECT_FALSE(times.NoteResult(Of(4)).has_value());
  times.NoteRun(v1::PHASE_TRAINING, Of(5));
  times.NoteRun(kToken, Of(6));
  EXPECT_FALSE(times.NoteResult(Of(7)).has_value());
}

TEST(ResultTimesTest, NextPromptRestartsTheTimes) {
  ResultTimes times;
  times.NoteRun(kPrompt, Of(1));
  times.NoteResult(Of(2));
  times.NoteRun(kPrompt, Of(60));
  const auto result = times.NoteResult(Of(61));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->first);
  EXPECT_EQ(result->took, Of(1));
}

}  // namespace
}  // namespace djinn::worker
