#include "gpu_worker/device/cpu/block_cache.h"

#include <cstring>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kAny = UINT64_MAX;
constexpr uint64_t kOwner = 1;
constexpr uint64_t kOther = 2;
constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockCacheTest, ABlockHasRoomAndLittleMore) {
  for (size_t bytes = BlockCache::kLeastBytes; bytes < 64 * kMiB;
       bytes += bytes / 7 + 1) {
    const size_t block = BlockCache::BlockBytes(bytes);
    EXPECT_GE(block, bytes);
    EXPECT_LE(block, bytes + bytes / 8);
    EXPECT_EQ(block % 4096, 0u) << bytes;
    EXPECT_EQ(BlockCache::BlockBytes(block), block);
  }
}

TEST(BlockCacheTest, AllOfABlockCanBeWritten) {
  BlockCache cache;
  for (const size_t bytes : {64 << 10, 3 << 20, 70 << 20}) {
    void* const block = cache.Take(static_cast<size_t>(bytes), kOwner).data;
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u);
    const size_t size = BlockCache::BlockBytes(static_cast<size_t>(bytes));
    std::memset(block, 7, size);
    EXPECT_EQ(static_cast<char*>(block)[size - 1], 7);
    EXPECT_EQ(cache.Return(block, 0), size);
  }
  EXPECT_EQ(cache.idle_bytes(), 0u);
}

TEST(BlockCacheTest, TheNextOfItsClassGetsIt) {
  BlockCache cache;
  void* const block = cache.Take(kMiB, kOwner).data;
  EXPECT_EQ(cache.Return(block, kAny), kMiB);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  void* const other = cache.Take(2 * kMiB, kOwner).data;
  EXPECT_EQ(cache.Take(kMiB - 1, kOwner).data, block);
  EXPECT_EQ(cache.idle_bytes(), 0u);
  EXPECT_EQ(cache.Return(block, 0), kMiB);
  EXPECT_EQ(cache.Return(other, 0), 2 * kMiB);
}

TEST(BlockCacheTest, TellsWhetherAnotherOwnersBytesAreInABlock) {
  BlockCache cache;
  const BlockCache::Block first = cache.Take(kMiB, kOwner);
  EXPECT_FALSE(first.foreign);  // it is new
  cache.Return(first.data, kAny);
  EXPECT_FALSE(cache.Take(kMiB, kOwner).foreign);
  cache.Return(first.data, kAny);
  const BlockCache::Block passed_on = cache.Take(kMiB, kOther);
  EXPECT_EQ(passed_on.data, first.data);
  EXPECT_TRUE(passed_on.foreign);
  cache.Return(passed_on.data, kAny);
  // A block of nobody may hold anybody's bytes, also for nobody.
  EXPECT_TRUE(cache.Take(kMiB, BlockCache::kNobody).foreign);
  cache.Return(first.data, kAny);
  EXPECT_TRUE(cache.Take(kMiB, BlockCache::kNobody).foreign);
  cache.Return(first.data, kAny);
  EXPECT_TRUE(cache.Take(kMiB, kOther).foreign);
  cache.Return(first.data, 0);
}

TEST(BlockCacheTest, AnOwnerGetsItsOwnBlockBeforeLaterOnes) {
  BlockCache cache;
  void* const own = cache.Take(kMiB, kOwner).data;
  void* const other = cache.Take(kMiB, kOther).data;
  cache.Return(own, kAny);
  cache.Return(other, kAny);
  const BlockCache::Block block = cache.Take(kMiB, kOwner);
  EXPECT_EQ(block.data, own);
  EXPECT_FALSE(block.foreign);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  cache.Return(own, 0);
}

TEST(BlockCacheTest, ForeignBlockIsNotReturned) {
  BlockCache cache;
  int here = 0;
  EXPECT_EQ(cache.Return(&here, kAny), 0u);
  void* const block = cache.Take(kMiB, kOwner).data;
  cache.Return(block, kAny);
  EXPECT_EQ(cache.Return(block, kAny), 0u);  // it is idle already
  EXPECT_EQ(cache.idle_bytes(), kMiB);
}

TEST(BlockCacheTest, NoMoreWaitsThanMay) {
  BlockCache cache;
  void* const first = cache.Take(kMiB, kOwner).data;
  void* const second = cache.Take(kMiB, kOwner).data;
  void* const large = cache.Take(4 * kMiB, kOwner).data;
  cache.Return(first, 2 * kMiB);
  cache.Return(large, 2 * kMiB);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  cache.Return(second, 2 * kMiB);
  EXPECT_EQ(cache.idle_bytes(), 2 * kMiB);
  cache.Shrink(kMiB + 1);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
}

TEST(BlockCacheTest, LargeBlocksAreGivenBackFirst) {
  BlockCache cache;
  void* const small = cache.Take(kMiB, kOwner).data;
  void* const large = cache.Take(4 * kMiB, kOwner).data;
  cache.Return(small, kAny);
  cache.Return(large, kAny);
  cache.Shrink(kMiB);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  EXPECT_EQ(cache.Take(kMiB, kOwner).data, small);
  cache.Return(small, 0);
}

TEST(BlockCacheTest, UnneededBlocksAreReleased) {
  BlockCache cache;
  void* const needed = cache.Take(kMiB, kOwner).data;
  void* const once = cache.Take(kMiB, kOwner).data;
  cache.Return(once, kAny);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();  // both were returned since the last call
  EXPECT_EQ(cache.idle_bytes(), 2 * kMiB);
  EXPECT_EQ(cache.Take(kMiB, kOwner).data, needed);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  EXPECT_EQ(cache.Take(kMiB, kOwner).data, needed);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), 0u);
}

}  // namespace
}  // namespace djinn::worker
