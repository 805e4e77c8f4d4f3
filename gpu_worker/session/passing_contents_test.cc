#include "gpu_worker/session/passing_contents.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Three of them are kept.
constexpr uint64_t kSize = PassingContents::kKeptBytes / 4;

class PassingContentsTest : public testing::Test {
 protected:
  // Only a name.
  const Buffer* BufferOf(uint64_t number) const {
    return reinterpret_cast<const Buffer*>(&names_[number]);
  }
  void Upload(uint64_t number) {
    passing_.NoteUploaded({number, 0}, BufferOf(number));
  }
  void Pass(uint64_t number, uint64_t size_bytes = kSize) {
    Upload(number);
    passing_.NoteFreed(BufferOf(number), size_bytes);
  }
  // The number of the one that makes way, or -1.
  int64_t MakeWay(uint64_t size_bytes = kSize) {
    const std::optional<ContentHash> hash = passing_.MakeWay(size_bytes);
    return hash.has_value() ? static_cast<int64_t>(hash->high) : -1;
  }

  const std::vector<char> names_ = std::vector<char>(5000);
  FakeClock clock_;
  PassingContents passing_{&clock_};
};

TEST_F(PassingContentsTest, TheOldestMakesWayOnceThereAreEnough) {
  for (const uint64_t number : {1, 2, 3}) {
    Pass(number);
    EXPECT_EQ(MakeWay(), -1);
  }
  Pass(4);
  EXPECT_EQ(MakeWay(), 1);
  EXPECT_EQ(MakeWay(), -1);
  Pass(5);
  EXPECT_EQ(MakeWay(), 2);
}

TEST_F(PassingContentsTest, OnlyThoseOfTheSizeMakeWay) {
  for (const uint64_t number : {1, 2, 3, 4}) Pass(number);
  EXPECT_EQ(MakeWay(kSize + 1), -1);
  EXPECT_EQ(MakeWay(kSize), 1);
}

TEST_F(PassingContentsTest, OfTheLargestNoneIsKept) {
  constexpr uint64_t kLarge = 2 * PassingContents::kKeptBytes;
  EXPECT_EQ(MakeWay(kLarge), -1);
  Pass(1, kLarge);
  EXPECT_EQ(MakeWay(kLarge), 1);
  EXPECT_EQ(MakeWay(kLarge), -1);
}

TEST_F(PassingContentsTest, WhatIsInUseOrWasForLongDoesNotPass) {
  for (const uint64_t number : {1, 2, 3, 4, 5, 6}) Upload(number);
  EXPECT_EQ(MakeWay(), -1);
  clock_.Advance(PassingContents::kSoon + absl::Milliseconds(1));
  for (const uint64_t number : {1, 2, 3, 4, 5, 6}) {
    passing_.NoteFreed(BufferOf(number), kSize);
  }
  EXPECT_EQ(MakeWay(), -1);
}

TEST_F(PassingContentsTest, WhatNobodyUploadedDoesNotPass) {
  for (const uint64_t number : {1, 2, 3, 4}) {
    passing_.NoteFreed(BufferOf(number), kSize);
  }
  EXPECT_EQ(MakeWay(), -1);
  // Nor does it twice.
  Pass(1);
  for (int i = 0; i < 5; ++i) passing_.NoteFreed(BufferOf(1), kSize);
  EXPECT_EQ(MakeWay(), -1);
}

TEST_F(PassingContentsTest, ABufferInTheSamePlaceIsAnother) {
  for (const uint64_t number : {1, 2, 3, 4}) {
    passing_.NoteUploaded({number, 0}, BufferOf(0));
    passing_.NoteFreed(BufferOf(0), kSize);
  }
  Upload(5);
  passing_.NoteUploaded({6, 0}, BufferOf(5));
  passing_.NoteFreed(BufferOf(5), kSize);
  EXPECT_EQ(MakeWay(), 1);
  EXPECT_EQ(MakeWay(), 2);
  EXPECT_EQ(MakeWay(), -1);
}

TEST_F(PassingContentsTest, TheLatestAreRemembered) {
  const uint64_t many = PassingContents::kMaxRemembered + 10;
  for (uint64_t number = 0; number < many; ++number) Upload(number);
  for (uint64_t number = 0; number < 10; ++number) {
    passing_.NoteFreed(BufferOf(number), kSize);
  }
  EXPECT_EQ(MakeWay(), -1);
  for (uint64_t number = 10; number < many; ++number) {
    passing_.NoteFreed(BufferOf(number), kSize);
  }
  for (uint64_t number = 1000; number < 1000 + many; ++number) Pass(number);
  EXPECT_EQ(MakeWay(), 1010);
}

}  // namespace
}  // namespace djinn::worker
