#include "client_lib/session/transfer/spill_file.h"

#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "common/hash/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::HasSubstr;

using Kept = std::shared_ptr<const SpillFile::Extent>;

std::string Bytes(size_t size, char fill) { return std::string(size, fill); }

Kept Keep(const std::shared_ptr<SpillFile>& file, const std::string& bytes) {
  return file->Keep(HashContent(bytes.data(), bytes.size()), bytes);
}

std::string Read(const Kept& kept) {
  if (kept == nullptr) return "not kept";
  const absl::StatusOr<SharedBytes> read = kept->Read();
  return read.ok() ? std::string(read->bytes) : read.status().ToString();
}

TEST(SpillFileTest, BytesComeBackAndTheirRoomReturns) {
  const auto file = SpillFile::Make(1 << 20);
  Kept a = Keep(file, Bytes(300'000, 'a'));
  const Kept b = Keep(file, Bytes(500'000, 'b'));
  EXPECT_EQ(Read(a), Bytes(300'000, 'a'));
  EXPECT_EQ(Read(b), Bytes(500'000, 'b'));
  EXPECT_EQ(file->used(), 800'000u);
  EXPECT_EQ(file->written(), 800'000u);
  a = nullptr;
  EXPECT_EQ(file->used(), 500'000u);
  EXPECT_TRUE(file->failure().ok());
}

TEST(SpillFileTest, EqualBytesAreKeptOnce) {
  const auto file = SpillFile::Make(1000);
  Kept first = Keep(file, Bytes(600, 'a'));
  const Kept second = Keep(file, Bytes(600, 'a'));
  EXPECT_EQ(first, second);
  EXPECT_EQ(file->used(), 600u);
  first = nullptr;
  EXPECT_EQ(Read(second), Bytes(600, 'a'));
}

TEST(SpillFileTest, OtherBytesWithTheSameHashAreKeptBesideThem) {
  const auto file = SpillFile::Make(1000);
  Kept a = file->Keep({1, 2}, Bytes(300, 'a'));
  const Kept b = file->Keep({1, 2}, Bytes(300, 'b'));
  EXPECT_EQ(Read(a), Bytes(300, 'a'));
  EXPECT_EQ(Read(b), Bytes(300, 'b'));
  a = nullptr;
  EXPECT_EQ(file->Keep({1, 2}, Bytes(300, 'b')), b);
}

TEST(SpillFileTest, ReleasedRoomIsUsedAgainWithinTheLimit) {
  const auto file = SpillFile::Make(1000);
  std::vector<Kept> kept;
  for (char c = 'a'; c < 'k'; ++c) kept.push_back(Keep(file, Bytes(100, c)));
  EXPECT_EQ(Keep(file, Bytes(100, 'x')), nullptr);
  EXPECT_THAT(std::string(file->failure().message()), HasSubstr("replay_disk"));
  // The neighbours' rooms are joined.
  kept[3] = kept[5] = kept[4] = nullptr;
  EXPECT_EQ(Keep(file, Bytes(301, 'x')), nullptr);
  const Kept joined = Keep(file, Bytes(250, 'x'));
  const Kept rest = Keep(file, Bytes(50, 'y'));
  EXPECT_EQ(Read(joined), Bytes(250, 'x'));
  EXPECT_EQ(Read(rest), Bytes(50, 'y'));
  EXPECT_EQ(Read(kept[2]), Bytes(100, 'c'));
  EXPECT_EQ(Read(kept[6]), Bytes(100, 'g'));
  EXPECT_EQ(file->used(), 1000u);
}

TEST(SpillFileTest, RoomAtTheEndGrowsToTheLimit) {
  const auto file = SpillFile::Make(1000);
  const Kept a = Keep(file, Bytes(400, 'a'));
  Keep(file, Bytes(300, 'b')).reset();
  EXPECT_EQ(Read(Keep(file, Bytes(600, 'c'))), Bytes(600, 'c'));
  EXPECT_EQ(Keep(file, Bytes(601, 'd')), nullptr);
  EXPECT_EQ(Read(a), Bytes(400, 'a'));
}

TEST(SpillFileTest, TrimmingKeepsWhatIsKept) {
  constexpr size_t kLarge = size_t{40} << 20;
  const auto file = SpillFile::Make(kLarge * 4);
  Kept a = Keep(file, Bytes(kLarge, 'a'));
  const Kept b = Keep(file, Bytes(1000, 'b'));
  Kept c = Keep(file, Bytes(kLarge, 'c'));
  a = c = nullptr;
  file->Trim();
  EXPECT_EQ(Read(b), Bytes(1000, 'b'));
  const Kept d = Keep(file, Bytes(kLarge, 'd'));
  file->Trim();
  EXPECT_EQ(Read(d), Bytes(kLarge, 'd'));
}

TEST(SpillFileTest, BytesOutliveTheFilesOwner) {
  auto file = SpillFile::Make(1000);
  const Kept a = Keep(file, Bytes(10, 'a'));
  file = nullptr;
  EXPECT_EQ(Read(a), Bytes(10, 'a'));
}

TEST(SpillFileTest, TheSecondDirectoryServesIfTheFirstCannot) {
  const auto file = SpillFile::Make(1000, {"/nonexistent", testing::TempDir()});
  EXPECT_EQ(Read(Keep(file, Bytes(10, 'a'))), Bytes(10, 'a'));
}

TEST(SpillFileTest, WithoutADirectoryNothingIsKept) {
  const auto file = SpillFile::Make(1000, {"/nonexistent"});
  EXPECT_EQ(Keep(file, Bytes(10, 'a')), nullptr);
  EXPECT_THAT(std::string(file->failure().message()),
              HasSubstr("/nonexistent"));
  EXPECT_EQ(file->used(), 0u);
}

TEST(SpillFileTest, AWriteThatWouldFailLeavesItsRoom) {
  constexpr size_t kMebibyte = size_t{1} << 20;
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  // The test's own output is shorter.
  small.rlim_cur = 8 * kMebibyte;
  const auto file = SpillFile::Make(16 * kMebibyte);
  const Kept a = Keep(file, Bytes(kMebibyte, 'a'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(Keep(file, Bytes(8 * kMebibyte, 'b')), nullptr);
  EXPECT_THAT(std::string(file->failure().message()), HasSubstr("ulimit"));
  EXPECT_EQ(file->used(), kMebibyte);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  const Kept c = Keep(file, Bytes(15 * kMebibyte, 'c'));
  EXPECT_EQ(Read(c), Bytes(15 * kMebibyte, 'c'));
  EXPECT_EQ(Read(a), Bytes(kMebibyte, 'a'));
}

}  // namespace
}  // namespace djinn
