#include "gpu_worker/plan/graph_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/srg/canonical.h"
#include "common/srg/validate.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using testing::UnorderedElementsAre;

std::shared_ptr<Plan> MakePlan(FakeDevice* device, int64_t elements) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, elements);
  return std::make_shared<Plan>(
      srg::Fingerprint(s.get()), s.get(),
      srg::Validate(s.get(), srg::GraphCaps()).value(),
      device->operators()->Compile(s.get()).value(), /*encoded_bytes=*/0);
}

// Makes a plan of `base` at another size than 0.
std::shared_ptr<Plan> MakeSized(FakeDevice* device, const Plan& base,
                                int64_t size) {
  return std::make_shared<Plan>(
      base, size, base.graph(), base.facts(),
      device->operators()->Compile(base.graph()).value());
}

TEST(GraphCacheTest, EvictsTheLeastRecentlyUsed) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 2});
  std::shared_ptr<Plan> a = MakePlan(&device, 1);
  std::shared_ptr<Plan> b = MakePlan(&device, 2);
  std::shared_ptr<Plan> c = MakePlan(&device, 3);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), nullptr);
  cache.Insert(a, "red");
  cache.Insert(b, "red");
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "red"), a);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), a);
  cache.Insert(c, "red");
  EXPECT_EQ(cache.Find(b->fingerprint(), "red"), nullptr);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), a);
  const GraphCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_EQ(stats.plans, 2u);
}

TEST(GraphCacheTest, TenantsOfAGraphAreKnownWhileItIsHeld) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 1});
  std::shared_ptr<Plan> a = MakePlan(&device, 1);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), nullptr);
  cache.Insert(a, "red");
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), a);
  EXPECT_EQ(cache.Find(a->fingerprint(), "blue"), nullptr);
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "blue"), a);
  EXPECT_EQ(cache.Find(a->fingerprint(), "blue"), a);
  cache.Insert(MakePlan(&device, 2), "red");
  const auto again = cache.Insert(MakePlan(&device, 1), "red");
  EXPECT_EQ(cache.Find(a->fingerprint(), "red"), again);
  EXPECT_EQ(cache.Find(a->fingerprint(), "blue"), nullptr);
}

TEST(GraphCacheTest, ATenantDoesNotCrowdOutAnother) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 8});
  // Fills half of each kind's half of the cache.
  std::vector<std::shared_ptr<const Plan>> blue;
  for (int64_t i = 0; i < 2; ++i) {
    blue.push_back(cache.Insert(MakePlan(&device, 1 + i), "blue"));
    blue.push_back(cache.Insert(MakeSized(&device, *blue.back(), 5), "blue"));
  }
  const std::shared_ptr<const Plan> base =
      cache.Insert(MakePlan(&device, 3), "red");
  for (int64_t i = 0; i < 50; ++i) {
    cache.Insert(MakePlan(&device, 10 + i), "red");
    cache.Insert(MakeSized(&device, *base, 10 + i), "red");
  }
  EXPECT_EQ(cache.stats().plans, 8u);
  for (const auto& plan : blue) {
    EXPECT_EQ(cache.Use(plan->fingerprint(), "blue", plan->size()), plan);
  }
}

TEST(GraphCacheTest, ATenantDoesNotCrowdOutAnotherWithBytes) {
  FakeDevice device(1000);
  const uint64_t each = MakePlan(&device, 1)->estimated_bytes();
  GraphCache cache({.max_plans = 100, .max_bytes = 6 * each});
  const auto mine = cache.Insert(MakePlan(&device, 1), "blue");
  for (int64_t i = 0; i < 50; ++i) {
    cache.Insert(MakePlan(&device, 10 + i), "red");
    cache.Insert(MakePlan(&device, 100 + i), "green");
  }
  EXPECT_EQ(cache.Use(mine->fingerprint(), "blue"), mine);
}

TEST(GraphCacheTest, PlanUsedByAnotherTenantStays) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 3});
  const auto shared = cache.Insert(MakePlan(&device, 1), "red");
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "blue"), shared);
  for (int64_t i = 0; i < 10; ++i)
    cache.Insert(MakePlan(&device, 9 + i), "red");
  EXPECT_EQ(cache.Use(shared->fingerprint(), "blue"), shared);
  // The tenant that gave the plan up does not see that the cache still has it.
  EXPECT_EQ(cache.Use(shared->fingerprint(), "red"), nullptr);
  EXPECT_EQ(cache.Find(shared->fingerprint(), "red"), nullptr);
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "red"), shared);
  EXPECT_EQ(cache.Use(shared->fingerprint(), "red"), shared);
}

TEST(GraphCacheTest, ATenantRunsNoPlanThatItDidNotDefine) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 10});
  const auto base = cache.Insert(MakePlan(&device, 1), "red");
  const auto sized = cache.Insert(MakeSized(&device, *base, 5), "red");
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue"), nullptr);
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue", 5), nullptr);
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "blue"), base);
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue"), base);
  // Nor does it find one at a size that it did not run.
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue", 5), nullptr);
  EXPECT_EQ(cache.Insert(MakeSized(&device, *base, 5), "blue"), sized);
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue", 5), sized);
}

TEST(GraphCacheTest, LimitsBytesToo) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 100, .max_bytes = 1});
  cache.Insert(MakePlan(&device, 1), "red");
  cache.Insert(MakePlan(&device, 2), "red");
  EXPECT_EQ(cache.stats().plans, 1u);
}

TEST(GraphCacheTest, ARunOfAnySizeIsAUseOfTheGraph) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 3});
  const std::shared_ptr<const Plan> a =
      cache.Insert(MakePlan(&device, 1), "red");
  cache.Insert(MakeSized(&device, *a, 5), "red");
  const std::shared_ptr<const Plan> b =
      cache.Insert(MakePlan(&device, 2), "red");
  EXPECT_NE(cache.Use(a->fingerprint(), "red", 5), nullptr);
  cache.Insert(MakePlan(&device, 3), "red");
  EXPECT_EQ(cache.Use(b->fingerprint(), "red"), nullptr);
  EXPECT_EQ(cache.Use(a->fingerprint(), "red"), a);
}

TEST(GraphCacheTest, ManySizesLeaveOtherGraphsTheirHalf) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 6});
  const std::shared_ptr<const Plan> a =
      cache.Insert(MakePlan(&device, 1), "red");
  const std::shared_ptr<const Plan> b =
      cache.Insert(MakePlan(&device, 2), "red");
  const std::shared_ptr<const Plan> c =
      cache.Insert(MakePlan(&device, 3), "red");
  for (int64_t size = 1; size <= 20; ++size) {
    cache.Insert(MakeSized(&device, *a, size), "red");
  }
  for (const auto& base : {a, b, c}) {
    EXPECT_EQ(cache.Use(base->fingerprint(), "red"), base);
  }
  EXPECT_EQ(cache.Use(a->fingerprint(), "red", 17), nullptr);
  // New bases do not evict the sized plans either.
  for (int64_t elements = 4; elements < 20; ++elements) {
    cache.Insert(MakePlan(&device, elements), "red");
    EXPECT_NE(cache.Use(a->fingerprint(), "red", 18), nullptr);
    EXPECT_NE(cache.Use(a->fingerprint(), "red", 20), nullptr);
  }
  EXPECT_EQ(cache.stats().plans, 6u);
}

TEST(GraphCacheTest, BytesHaveHalvesToo) {
  FakeDevice device(1000);
  const uint64_t each = MakePlan(&device, 1)->estimated_bytes();
  GraphCache cache({.max_plans = 100, .max_bytes = 4 * each});
  const std::shared_ptr<const Plan> a =
      cache.Insert(MakePlan(&device, 1), "red");
  const std::shared_ptr<const Plan> b =
      cache.Insert(MakePlan(&device, 2), "red");
  for (int64_t size = 1; size <= 20; ++size) {
    cache.Insert(MakeSized(&device, *a, size), "red");
  }
  EXPECT_EQ(cache.Use(b->fingerprint(), "red"), b);
  EXPECT_EQ(cache.stats().bytes, 4 * each);
}

TEST(GraphCacheTest, GraphThatComesBackKeepsItsCounters) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 1});
  const std::shared_ptr<const Plan> first =
      cache.Insert(MakePlan(&device, 1), "red");
  for (int i = 0; i < 1000; ++i) first->CountRun();
  // Keeps a plan of the graph in the cache, but not the one it was made from.
  cache.Insert(MakeSized(&device, *first, 5), "red");
  EXPECT_EQ(cache.Use(first->fingerprint(), "red"), nullptr);
  const auto again = cache.Insert(MakePlan(&device, 1), "red");
  ASSERT_NE(again, first);
  EXPECT_EQ(again->runs(), 1000u);
  // A plan whose base was evicted while it was made shares the counters, too.
  const std::shared_ptr<Plan> stray =
      MakeSized(&device, *MakePlan(&device, 1), 6);
  cache.Insert(stray, "red");
  stray->CountRun();
  EXPECT_EQ(again->runs(), 1001u);
}

TEST(GraphCacheTest, ListsEachGraphOnce) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 10});
  const std::shared_ptr<const Plan> a =
      cache.Insert(MakePlan(&device, 1), "red");
  const std::shared_ptr<const Plan> b =
      cache.Insert(MakePlan(&device, 2), "red");
  cache.Insert(MakeSized(&device, *a, 5), "red");
  cache.Insert(MakeSized(&device, *a, 6), "red");
  EXPECT_THAT(cache.List(), UnorderedElementsAre(a, b));
}

}  // namespace
}  // namespace djinn::worker
