#include <memory>
#include <string>

#include "common/srg/canonical.h"
#include "gpu_worker/cache/content_cache.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_structure.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

std::shared_ptr<const Plan> MakePlan(FakeDevice* device, int64_t size) {
  FakeStructure s;
  const uint32_t x = s.Bound();
  s.Add(x, x, size);
  return std::make_shared<Plan>(
      srg::Fingerprint(s.get()), s.get(),
      srg::Validate(s.get(), srg::StructureCaps()).value(),
      device->operators()->Compile(s.get()).value(), /*encoded_bytes=*/0);
}

TEST(GraphCacheTest, EvictsTheLeastRecentlyUsed) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 2});
  std::shared_ptr<const Plan> a = MakePlan(&device, 1);
  std::shared_ptr<const Plan> b = MakePlan(&device, 2);
  std::shared_ptr<const Plan> c = MakePlan(&device, 3);
  EXPECT_EQ(cache.Find(a->fingerprint()), nullptr);
  cache.Insert(a);
  cache.Insert(b);
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1)), a);
  EXPECT_EQ(cache.Find(a->fingerprint()), a);
  cache.Insert(c);
  EXPECT_EQ(cache.Find(b->fingerprint()), nullptr);
  EXPECT_EQ(cache.Find(a->fingerprint()), a);
  const GraphCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_EQ(stats.plans, 2u);
}

TEST(GraphCacheTest, LimitsBytesToo) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 100, .max_bytes = 1});
  cache.Insert(MakePlan(&device, 1));
  cache.Insert(MakePlan(&device, 2));
  EXPECT_EQ(cache.stats().plans, 1u);
}

TEST(ContentCacheTest, FindsWithinATenantOnly) {
  FakeDevice device(1000);
  ContentCache cache(10);
  const ContentHash hash{1, 2};
  std::shared_ptr<Buffer> buffer = *device.Allocate(8);
  EXPECT_EQ(cache.Insert("a", hash, buffer), buffer);
  EXPECT_EQ(cache.Find("a", hash, 8), buffer);
  EXPECT_EQ(cache.Find("a", hash, 9), nullptr);
  EXPECT_EQ(cache.Find("b", hash, 8), nullptr);
  // An equal content keeps the first buffer.
  EXPECT_EQ(cache.Insert("a", hash, *device.Allocate(8)), buffer);
  EXPECT_EQ(cache.List().size(), 1u);
}

TEST(ContentCacheTest, EvictsIdleContentsOldestFirst) {
  FakeDevice device(1000);
  ContentCache cache(10);
  std::shared_ptr<Buffer> used =
      cache.Insert("a", {1, 0}, *device.Allocate(100));
  cache.Insert("a", {2, 0}, *device.Allocate(100));
  cache.Insert("a", {3, 0}, *device.Allocate(100));
  cache.Find("a", {2, 0}, 100);
  EXPECT_EQ(cache.stats().idle_bytes, 200u);
  cache.EvictIdle(50);
  EXPECT_EQ(cache.Find("a", {3, 0}, 100), nullptr);
  EXPECT_NE(cache.Find("a", {2, 0}, 100), nullptr);
  cache.EvictIdle(1000);
  EXPECT_EQ(cache.List().size(), 1u);
  EXPECT_EQ(device.live_bytes(), 100u);
}

TEST(ContentCacheTest, IsBounded) {
  FakeDevice device(1000);
  ContentCache cache(2);
  std::shared_ptr<Buffer> a = cache.Insert("a", {1, 0}, *device.Allocate(1));
  cache.Insert("a", {2, 0}, *device.Allocate(1));
  std::shared_ptr<Buffer> c = cache.Insert("a", {3, 0}, *device.Allocate(1));
  EXPECT_EQ(cache.Find("a", {2, 0}, 1), nullptr);
  EXPECT_EQ(cache.List().size(), 2u);
  // All in use: the newcomer is not kept, but still works.
  EXPECT_NE(cache.Insert("a", {4, 0}, *device.Allocate(1)), nullptr);
  EXPECT_EQ(cache.List().size(), 2u);
}

}  // namespace
}  // namespace djinn::worker
