#include "gpu_worker/device/cpu/block_cache.h"

#include <cstring>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kAny = UINT64_MAX;
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
    void* const block = cache.Take(static_cast<size_t>(bytes));
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
  void* const block = cache.Take(kMiB);
  EXPECT_EQ(cache.Return(block, kAny), kMiB);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  void* const other = cache.Take(2 * kMiB);
  EXPECT_EQ(cache.Take(kMiB - 1), block);
  EXPECT_EQ(cache.idle_bytes(), 0u);
  EXPECT_EQ(cache.Return(block, 0), kMiB);
  EXPECT_EQ(cache.Return(other, 0), 2 * kMiB);
}

TEST(BlockCacheTest, WhatIsNotItsOwnIsToldApart) {
  BlockCache cache;
  int here = 0;
  EXPECT_EQ(cache.Return(&here, kAny), 0u);
  void* const block = cache.Take(kMiB);
  cache.Return(block, kAny);
  EXPECT_EQ(cache.Return(block, kAny), 0u);  // it is idle already
  EXPECT_EQ(cache.idle_bytes(), kMiB);
}

TEST(BlockCacheTest, NoMoreWaitsThanMay) {
  BlockCache cache;
  void* const first = cache.Take(kMiB);
  void* const second = cache.Take(kMiB);
  void* const large = cache.Take(4 * kMiB);
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
  void* const small = cache.Take(kMiB);
  void* const large = cache.Take(4 * kMiB);
  cache.Return(small, kAny);
  cache.Return(large, kAny);
  cache.Shrink(kMiB);
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  EXPECT_EQ(cache.Take(kMiB), small);
  cache.Return(small, 0);
}

TEST(BlockCacheTest, UnneededBlocksAreReleased) {
  BlockCache cache;
  void* const needed = cache.Take(kMiB);
  void* const once = cache.Take(kMiB);
  cache.Return(once, kAny);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();  // both were returned since the last call
  EXPECT_EQ(cache.idle_bytes(), 2 * kMiB);
  EXPECT_EQ(cache.Take(kMiB), needed);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  EXPECT_EQ(cache.Take(kMiB), needed);
  cache.Return(needed, kAny);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), kMiB);
  cache.ReleaseUnused();
  EXPECT_EQ(cache.idle_bytes(), 0u);
}

}  // namespace
}  // namespace djinn::worker
