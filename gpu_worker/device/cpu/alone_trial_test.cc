#include "gpu_worker/device/cpu/alone_trial.h"

#include <vector>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Way = AloneTrial::Way;

constexpr AloneTrial::Comparison kSoonerAlone = {.equal = true,
                                                 .elements = 100,
                                                 .telling = 100,
                                                 .together_nanoseconds = 200,
                                                 .alone_nanoseconds = 100};

void Warm(AloneTrial* trial) {
  for (uint32_t i = 0; i < AloneTrial::kRuns; ++i) {
    ASSERT_EQ(trial->Next(), Way::kTogether);
  }
  ASSERT_EQ(trial->Next(), Way::kBoth);
}

TEST(AloneTrial, ComparesWhatRunsOftenAndLeavesItToOneThread) {
  AloneTrial trial;
  Warm(&trial);
  for (int i = 0; i < AloneTrial::kComparisons; ++i) {
    EXPECT_EQ(trial.Next(), Way::kBoth);
    trial.Compared(kSoonerAlone);
  }
  EXPECT_EQ(trial.Next(), Way::kAlone);
}

TEST(AloneTrial, OneBitIsTooMany) {
  AloneTrial trial;
  Warm(&trial);
  for (int i = 0; i + 1 < AloneTrial::kComparisons; ++i) {
    trial.Compared(kSoonerAlone);
  }
  AloneTrial::Comparison different = kSoonerAlone;
  different.equal = false;
  trial.Compared(different);
  EXPECT_EQ(trial.Next(), Way::kTogether);
  for (int i = 0; i < 2 * AloneTrial::kMaxComparisons; ++i) {
    trial.Compared(kSoonerAlone);
  }
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(AloneTrial, TriesOneWayOfOneThreadAfterTheOther) {
  AloneTrial trial(/*alone_ways=*/3);
  Warm(&trial);
  AloneTrial::Comparison different = kSoonerAlone;
  different.equal = false;
  trial.Compared(different);
  EXPECT_EQ(trial.alone_way(), 1u);
  // Not the first time.
  trial.Compared(kSoonerAlone);
  trial.Compared(different);
  EXPECT_EQ(trial.alone_way(), 2u);
  for (int i = 0; i < AloneTrial::kComparisons; ++i) {
    EXPECT_EQ(trial.Next(), Way::kBoth);
    trial.Compared(kSoonerAlone);
  }
  EXPECT_EQ(trial.Next(), Way::kAlone);
  trial.Refuse();
  EXPECT_EQ(trial.Next(), Way::kAlone);
  EXPECT_EQ(trial.alone_way(), 2u);
}

TEST(AloneTrial, WaysMayBeRefusedUntilThereIsNone) {
  AloneTrial trial(/*alone_ways=*/2);
  Warm(&trial);
  trial.Refuse();
  EXPECT_EQ(trial.Next(), Way::kBoth);
  trial.Refuse();
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(AloneTrial, ZerosDoNotTell) {
  AloneTrial trial;
  Warm(&trial);
  AloneTrial::Comparison zeros = kSoonerAlone;
  zeros.telling = 24;
  for (int i = 0; i < AloneTrial::kComparisons; ++i) trial.Compared(zeros);
  EXPECT_EQ(trial.Next(), Way::kBoth);
  for (int i = 0; i < AloneTrial::kMaxComparisons; ++i) trial.Compared(zeros);
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(AloneTrial, FewElementsTellLittle) {
  AloneTrial trial;
  Warm(&trial);
  AloneTrial::Comparison one = kSoonerAlone;
  one.elements = one.telling = 1;
  for (uint64_t i = 0; i < AloneTrial::kTellingElements; ++i) {
    EXPECT_EQ(trial.Next(), Way::kBoth);
    trial.Compared(one);
  }
  EXPECT_EQ(trial.Next(), Way::kAlone);
}

TEST(AloneTrial, NothingComparedDoesNotTell) {
  AloneTrial trial;
  Warm(&trial);
  AloneTrial::Comparison nothing = kSoonerAlone;
  nothing.elements = nothing.telling = 0;
  for (int i = 0; i < AloneTrial::kMaxComparisons; ++i) trial.Compared(nothing);
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(AloneTrial, AllThreadsMustGainAQuarter) {
  for (const uint64_t alone : {400u, 401u}) {
    AloneTrial trial;
    Warm(&trial);
    AloneTrial::Comparison comparison = kSoonerAlone;
    comparison.together_nanoseconds = 300;
    comparison.alone_nanoseconds = alone;
    for (int i = 0; i < AloneTrial::kComparisons; ++i) {
      trial.Compared(comparison);
    }
    EXPECT_EQ(trial.Next(), alone == 400 ? Way::kAlone : Way::kTogether);
  }
}

TEST(AloneTrial, WhatAllThreadsTakeAsARuleCounts) {
  AloneTrial trial;
  Warm(&trial);
  for (int i = 0; i < AloneTrial::kComparisons; ++i) {
    AloneTrial::Comparison comparison = kSoonerAlone;
    // Once in a while the others happen to be awake.
    comparison.together_nanoseconds = i % 3 == 0 ? 20 : 200;
    trial.Compared(comparison);
  }
  EXPECT_EQ(trial.Next(), Way::kAlone);
}

TEST(AloneTrial, IsShortWhereOneThreadIsMuchSlower) {
  AloneTrial trial;
  Warm(&trial);
  AloneTrial::Comparison slower = kSoonerAlone;
  slower.together_nanoseconds = 100;
  slower.alone_nanoseconds = 151;
  for (int i = 0; i < AloneTrial::kFirstComparisons; ++i) {
    EXPECT_EQ(trial.Next(), Way::kBoth);
    trial.Compared(slower);
  }
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(AloneTrial, WhatIsKnownNeedsNoTrial) {
  AloneTrial trial;
  trial.LeaveToOne();
  EXPECT_EQ(trial.Next(), Way::kAlone);
}

TEST(AloneTrial, GivesUp) {
  AloneTrial trial;
  Warm(&trial);
  trial.GiveUp();
  trial.Compared(kSoonerAlone);
  EXPECT_EQ(trial.Next(), Way::kTogether);
}

TEST(CountTelling, CountsElementsThatAreNeitherZeroNorRepeatedNorRound) {
  const std::vector<float> values = {0, 0.1f, 0.1f, 0.2f, 0, 0, 0.3f, 7};
  AloneTrial::Comparison comparison;
  const char* const data = reinterpret_cast<const char*>(values.data());
  CountTelling(data, values.size() * 4, 4, &comparison);
  EXPECT_EQ(comparison.elements, 8u);
  EXPECT_EQ(comparison.telling, 3u);
  CountTelling(data, 7, 4, &comparison);
  EXPECT_EQ(comparison.elements, 9u);
  EXPECT_EQ(comparison.telling, 3u);
  CountTelling(data, 0, 4, &comparison);
  CountTelling(data, 8, 0, &comparison);
  EXPECT_EQ(comparison.elements, 9u);
}

}  // namespace
}  // namespace djinn::worker
