#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/content_proof.h"
#include "common/random.h"
#include "common/srg/canonical.h"
#include "gmock/gmock.h"
#include "gpu_worker/cache/content_cache.h"
#include "gpu_worker/cache/content_proofs.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_structure.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::shared_ptr<Plan> MakePlan(FakeDevice* device, int64_t elements) {
  FakeStructure s;
  const uint32_t x = s.Bound();
  s.Add(x, x, elements);
  return std::make_shared<Plan>(
      srg::Fingerprint(s.get()), s.get(),
      srg::Validate(s.get(), srg::StructureCaps()).value(),
      device->operators()->Compile(s.get()).value(), /*encoded_bytes=*/0);
}

// Of another size than 0.
std::shared_ptr<Plan> MakeSized(FakeDevice* device, const Plan& base,
                                int64_t size) {
  return std::make_shared<Plan>(
      base, size, base.structure(), base.facts(),
      device->operators()->Compile(base.structure()).value());
}

TEST(GraphCacheTest, EvictsTheLeastRecentlyUsed) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 2});
  std::shared_ptr<Plan> a = MakePlan(&device, 1);
  std::shared_ptr<Plan> b = MakePlan(&device, 2);
  std::shared_ptr<Plan> c = MakePlan(&device, 3);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red").plan, nullptr);
  cache.Insert(a, "red");
  cache.Insert(b, "red");
  EXPECT_EQ(cache.Insert(MakePlan(&device, 1), "red"), a);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red").plan, a);
  cache.Insert(c, "red");
  EXPECT_EQ(cache.Find(b->fingerprint(), "red").plan, nullptr);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red").plan, a);
  const GraphCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_EQ(stats.plans, 2u);
}

TEST(GraphCacheTest, WhoDefinedAStructureIsKnownWhileItHoldsIt) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 1});
  std::shared_ptr<Plan> a = MakePlan(&device, 1);
  EXPECT_EQ(cache.Find(a->fingerprint(), "red").plan, nullptr);
  cache.Insert(a, "red");
  EXPECT_TRUE(cache.Find(a->fingerprint(), "red").held);
  EXPECT_FALSE(cache.Find(a->fingerprint(), "blue").held);
  EXPECT_TRUE(cache.Find(a->fingerprint(), "blue").held);
  cache.Insert(MakePlan(&device, 2), "red");
  cache.Insert(MakePlan(&device, 1), "red");
  EXPECT_TRUE(cache.Find(a->fingerprint(), "red").held);
  EXPECT_FALSE(cache.Find(a->fingerprint(), "blue").held);
}

TEST(GraphCacheTest, ATenantDoesNotCrowdOutAnother) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 8});
  // Half of the places for bases and a half of these.
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

TEST(GraphCacheTest, WhatAnotherTenantUsesStays) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 3});
  const auto shared = cache.Insert(MakePlan(&device, 1), "red");
  EXPECT_EQ(cache.Find(shared->fingerprint(), "blue").plan, shared);
  for (int64_t i = 0; i < 10; ++i)
    cache.Insert(MakePlan(&device, 9 + i), "red");
  EXPECT_EQ(cache.Use(shared->fingerprint(), "blue"), shared);
  // But whoever let go of it does not see that it is still here.
  EXPECT_EQ(cache.Use(shared->fingerprint(), "red"), nullptr);
  EXPECT_FALSE(cache.Find(shared->fingerprint(), "red").held);
  EXPECT_EQ(cache.Use(shared->fingerprint(), "red"), shared);
}

TEST(GraphCacheTest, ATenantRunsNoPlanThatItDidNotDefine) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 10});
  const auto base = cache.Insert(MakePlan(&device, 1), "red");
  const auto sized = cache.Insert(MakeSized(&device, *base, 5), "red");
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue"), nullptr);
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue", 5), nullptr);
  cache.Find(base->fingerprint(), "blue");
  EXPECT_EQ(cache.Use(base->fingerprint(), "blue", 5), sized);
}

TEST(GraphCacheTest, LimitsBytesToo) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 100, .max_bytes = 1});
  cache.Insert(MakePlan(&device, 1), "red");
  cache.Insert(MakePlan(&device, 2), "red");
  EXPECT_EQ(cache.stats().plans, 1u);
}

TEST(GraphCacheTest, ARunOfAnySizeIsAUseOfTheStructure) {
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

TEST(GraphCacheTest, ManySizesLeaveOtherStructuresTheirHalf) {
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
  // And the other way round.
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

TEST(GraphCacheTest, AStructureThatComesBackGoesOnCounting) {
  FakeDevice device(1000);
  GraphCache cache({.max_plans = 1});
  const std::shared_ptr<const Plan> first =
      cache.Insert(MakePlan(&device, 1), "red");
  for (int i = 0; i < 1000; ++i) first->CountRun();
  // Without the one it was made from.
  cache.Insert(MakeSized(&device, *first, 5), "red");
  EXPECT_EQ(cache.Use(first->fingerprint(), "red"), nullptr);
  const auto again = cache.Insert(MakePlan(&device, 1), "red");
  ASSERT_NE(again, first);
  EXPECT_EQ(again->runs(), 1000u);
  // So does one whose base was evicted while it was made.
  const std::shared_ptr<Plan> stray =
      MakeSized(&device, *MakePlan(&device, 1), 6);
  cache.Insert(stray, "red");
  stray->CountRun();
  EXPECT_EQ(again->runs(), 1001u);
}

TEST(GraphCacheTest, ListsAStructureOnce) {
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

class ContentCacheTest : public testing::Test {
 protected:
  std::shared_ptr<Buffer> Insert(const std::string& tenant, uint64_t hash,
                                 uint64_t bytes,
                                 absl::Duration cost = absl::Seconds(1)) {
    return cache_.Insert(tenant, {hash, 0}, *device_.Allocate(bytes), cost);
  }
  bool Has(const std::string& tenant, uint64_t hash, uint64_t bytes) {
    for (const ContentCache::Content& content : cache_.List()) {
      if (content.tenant == tenant && content.hash == ContentHash{hash, 0} &&
          content.size_bytes == bytes) {
        return true;
      }
    }
    return false;
  }

  FakeDevice device_{100000};
  ContentCache cache_{10};
};

TEST_F(ContentCacheTest, FindsWithinATenantOnly) {
  const std::shared_ptr<Buffer> buffer = Insert("a", 1, 8);
  EXPECT_EQ(cache_.Find("a", {1, 0}, 8), buffer);
  EXPECT_EQ(cache_.Find("a", {1, 0}, 9), nullptr);
  EXPECT_EQ(cache_.Find("b", {1, 0}, 8), nullptr);
  // An equal content keeps the first buffer.
  EXPECT_EQ(Insert("a", 1, 8), buffer);
  EXPECT_EQ(cache_.List().size(), 1u);
  // Another tenant's is its own.
  EXPECT_NE(Insert("b", 1, 8), buffer);
  EXPECT_EQ(cache_.List().size(), 2u);
}

TEST_F(ContentCacheTest, OffersToOthersWhatTenantsShare) {
  const std::shared_ptr<Buffer> a = Insert("a", 1, 8);
  const std::shared_ptr<Buffer> b = Insert("b", 1, 8);
  Insert("c", 1, 8);
  cache_.SetSharing({"a", "b", "d"});
  EXPECT_THAT(cache_.FindShared("d", {1, 0}, 8), ElementsAre(a, b));
  EXPECT_THAT(cache_.FindShared("d", {1, 0}, 9), IsEmpty());
  EXPECT_THAT(cache_.FindShared("c", {1, 0}, 8), IsEmpty());
  cache_.Find("d", {1, 0}, 8);
  cache_.Adopt("d", {1, 0}, b);
  EXPECT_EQ(cache_.Find("d", {1, 0}, 8), b);
  const ContentCache::Stats stats = cache_.stats();
  EXPECT_EQ(stats.adoptions, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 0u);
}

TEST_F(ContentCacheTest, AnAdoptedContentIsEvictedOnce) {
  cache_.SetSharing({"a", "b"});
  cache_.Adopt("b", {1, 0}, Insert("a", 1, 100));
  EXPECT_EQ(cache_.List().size(), 2u);
  EXPECT_EQ(cache_.stats().idle_bytes, 100u);
  cache_.EvictIdle(1);
  EXPECT_TRUE(cache_.List().empty());
  EXPECT_EQ(device_.live_bytes(), 0u);
}

TEST_F(ContentCacheTest, EvictsIdleContentsOldestFirst) {
  const std::shared_ptr<Buffer> used = Insert("a", 1, 100);
  Insert("a", 2, 100);
  Insert("a", 3, 100);
  cache_.Find("a", {2, 0}, 100);
  EXPECT_EQ(cache_.stats().idle_bytes, 200u);
  cache_.EvictIdle(50);
  EXPECT_FALSE(Has("a", 3, 100));
  EXPECT_TRUE(Has("a", 2, 100));
  cache_.EvictIdle(1000);
  EXPECT_EQ(cache_.List().size(), 1u);
  EXPECT_EQ(device_.live_bytes(), 100u);
}

TEST(ContentCacheIdleTest, SaysHowLongWhatGaveWayWasNotUsed) {
  FakeClock clock;
  FakeDevice device{1000};
  ContentCache cache(10, &clock);
  for (uint64_t i = 1; i <= 2; ++i) {
    cache.Insert("a", {i, i}, *device.Allocate(100), absl::Seconds(1));
  }
  clock.Advance(absl::Seconds(7));
  EXPECT_NE(cache.Find("a", {2, 2}, 100), nullptr);
  clock.Advance(absl::Seconds(3));
  cache.EvictIdle(100);
  EXPECT_EQ(cache.idle_before_evict().sum(), absl::Seconds(10));
  cache.EvictIdle(100);
  EXPECT_EQ(cache.idle_before_evict().sum(), absl::Seconds(13));
}

TEST_F(ContentCacheTest, EvictsFirstWhatIsSoonBackPerByte) {
  Insert("a", 1, 100, absl::Seconds(10));
  Insert("a", 2, 1000, absl::Seconds(20));  // dear, but large
  Insert("a", 3, 100, absl::Seconds(5));
  cache_.EvictIdle(1);
  EXPECT_FALSE(Has("a", 2, 1000));
  cache_.EvictIdle(1);
  EXPECT_FALSE(Has("a", 3, 100));
  EXPECT_TRUE(Has("a", 1, 100));
}

TEST_F(ContentCacheTest, KeepsWhatIsUsedOften) {
  Insert("a", 1, 100);
  for (int i = 0; i < 3; ++i) cache_.Find("a", {1, 0}, 100);
  for (uint64_t hash = 2; hash < 5; ++hash) Insert("a", hash, 100);
  cache_.EvictIdle(250);
  EXPECT_TRUE(Has("a", 1, 100));
  EXPECT_EQ(cache_.List().size(), 1u);
}

TEST_F(ContentCacheTest, ForgetsInTheEndWhatWasUsedOften) {
  Insert("a", 1, 100);
  for (int i = 0; i < 3; ++i) cache_.Find("a", {1, 0}, 100);
  // Each one that goes raises what newcomers are worth.
  for (uint64_t hash = 2; hash < 12 && Has("a", 1, 100); ++hash) {
    Insert("a", hash, 100);
    cache_.EvictIdle(1);
  }
  EXPECT_FALSE(Has("a", 1, 100));
}

TEST_F(ContentCacheTest, IdleContentsOfOneTenantDoNotCrowdOutAnothers) {
  // Cheap, old and never used again.
  Insert("blue", 1, 100, absl::Milliseconds(1));
  for (uint64_t hash = 2; hash <= 5; ++hash) {
    Insert("red", hash, 100, absl::Hours(1));
    cache_.Find("red", {hash, 0}, 100);
  }
  cache_.EvictIdle(300);
  EXPECT_TRUE(Has("blue", 1, 100));
  EXPECT_TRUE(Has("red", 5, 100));
  EXPECT_EQ(cache_.List().size(), 2u);
  // What is in use is not shared out.
  const std::shared_ptr<Buffer> used = Insert("blue", 6, 1000);
  Insert("red", 7, 100, absl::Hours(1));
  cache_.EvictIdle(100);
  EXPECT_TRUE(Has("blue", 1, 100));
  // All of it, when need be.
  cache_.EvictIdle(10000);
  EXPECT_EQ(cache_.List().size(), 1u);
}

TEST_F(ContentCacheTest, ManySmallContentsDoNotCrowdOutAnothers) {
  Insert("blue", 1, 8, absl::Milliseconds(1));
  Insert("blue", 2, 8, absl::Milliseconds(1));
  for (uint64_t hash = 3; hash < 30; ++hash) {
    Insert("red", hash, 8, absl::Hours(1));
    Insert("green", 100 + hash, 8, absl::Hours(1));
  }
  EXPECT_EQ(cache_.List().size(), 10u);
  EXPECT_TRUE(Has("blue", 1, 8));
  EXPECT_TRUE(Has("blue", 2, 8));
}

TEST_F(ContentCacheTest, WhatOneTenantLetsGoStaysTheOthers) {
  cache_.SetSharing({"red", "blue"});
  cache_.Adopt("blue", {1, 0}, Insert("red", 1, 100));
  for (uint64_t hash = 2; hash < 5; ++hash) {
    Insert("red", hash, 100, absl::Hours(1));
  }
  cache_.EvictIdle(200);
  EXPECT_TRUE(Has("blue", 1, 100));
  EXPECT_FALSE(Has("red", 1, 100));
  // Of the places, too: it counts as what the other sent.
  for (uint64_t hash = 10; hash < 30; ++hash) Insert("red", hash, 8);
  EXPECT_TRUE(Has("blue", 1, 100));
  for (uint64_t hash = 30; hash < 50; ++hash) Insert("blue", hash, 8);
  EXPECT_FALSE(Has("blue", 1, 100));
}

TEST_F(ContentCacheTest, OneTenantLeavesOthersHalfOfThePlaces) {
  std::vector<std::shared_ptr<Buffer>> in_use;
  for (uint64_t hash = 1; hash <= 10; ++hash) {
    in_use.push_back(Insert("a", hash, 8));
  }
  EXPECT_EQ(cache_.List().size(), 5u);
  for (uint64_t hash = 1; hash <= 5; ++hash) Insert("b", hash, 8);
  EXPECT_EQ(cache_.List().size(), 10u);
  // From now on each takes the place of one of its own.
  Insert("b", 6, 8);
  EXPECT_FALSE(Has("b", 1, 8));
  EXPECT_TRUE(Has("b", 6, 8));
  in_use.clear();
  Insert("a", 11, 8);
  EXPECT_TRUE(Has("a", 11, 8));
  EXPECT_EQ(cache_.List().size(), 10u);
}

TEST_F(ContentCacheTest, IsBounded) {
  ContentCache cache(4);
  const auto insert = [&](uint64_t hash) {
    return cache.Insert("a", {hash, 0}, *device_.Allocate(1), absl::Seconds(1));
  };
  const std::shared_ptr<Buffer> a = insert(1);
  insert(2);
  const std::shared_ptr<Buffer> c = insert(3);
  EXPECT_EQ(cache.Find("a", {2, 0}, 1), nullptr);
  EXPECT_EQ(cache.List().size(), 2u);
  // All in use: the newcomer is not kept, but still works.
  EXPECT_NE(insert(4), nullptr);
  EXPECT_EQ(cache.List().size(), 2u);
}

class ContentProofsTest : public testing::Test {
 protected:
  std::shared_ptr<Buffer> Allocate(const std::string& bytes) {
    std::shared_ptr<Buffer> buffer = *device_.Allocate(bytes.size());
    EXPECT_TRUE(device_.Write(buffer.get(), 0, bytes).ok());
    return buffer;
  }
  std::shared_ptr<ContentChallenge> Issue(
      uint64_t bytes, std::vector<std::shared_ptr<Buffer>> candidates,
      const std::string& tenant = "red", ContentProofs* proofs = nullptr) {
    return (proofs == nullptr ? proofs_ : *proofs)
        .Issue(
            tenant, bytes, std::move(candidates), [this] { ++settled_; },
            [this](absl::Duration time) { charged_ += time; });
  }

  FakeDevice device_{1 << 30};
  FakeRandomSource random_;
  ContentProofs proofs_{&device_, &random_, 2};
  int settled_ = 0;
  absl::Duration charged_;
};

TEST_F(ContentProofsTest, TheClientsBytesDecide) {
  const std::string wanted(1000, 'w');
  const std::shared_ptr<Buffer> other = Allocate(std::string(1000, 'o')),
                                right = Allocate(wanted);
  const auto challenge = Issue(1000, {other, right});
  challenge->Answer(ProveContent(challenge->key(), wanted));
  EXPECT_FALSE(challenge->settled());
  while (proofs_.Work()) {
  }
  EXPECT_TRUE(challenge->settled());
  EXPECT_EQ(settled_, 1);
  EXPECT_GT(charged_, absl::ZeroDuration());
  EXPECT_EQ(challenge->Take(), right);
}

TEST_F(ContentProofsTest, WorkWithoutCandidatesProvesNothing) {
  const std::string bytes(1000, '\0');
  const auto challenge = Issue(1000, {});
  while (proofs_.Work()) {
  }
  EXPECT_GT(charged_, absl::ZeroDuration());
  // Not even what the work was done on.
  challenge->Answer(ProveContent(challenge->key(), bytes));
  EXPECT_TRUE(challenge->settled());
  EXPECT_EQ(challenge->Take(), nullptr);
}

TEST_F(ContentProofsTest, TheFirstAnswerCounts) {
  const std::string bytes(1000, 'x');
  const auto challenge = Issue(1000, {Allocate(bytes)});
  challenge->Answer(std::string(kContentMacBytes, '?'));
  challenge->Answer(ProveContent(challenge->key(), bytes));
  while (proofs_.Work()) {
  }
  EXPECT_EQ(challenge->Take(), nullptr);
}

TEST_F(ContentProofsTest, AnExpiredChallengeTakesNoAnswer) {
  const std::string bytes(1000, 'x');
  const auto challenge = Issue(1000, {Allocate(bytes)});
  while (proofs_.Work()) {
  }
  challenge->Expire();
  EXPECT_TRUE(challenge->settled());
  challenge->Answer(ProveContent(challenge->key(), bytes));
  EXPECT_EQ(challenge->Take(), nullptr);
  EXPECT_EQ(settled_, 1);
}

TEST_F(ContentProofsTest, LongWorkTakesTurnsAndEndsWhenNobodyWaits) {
  const uint64_t large = uint64_t{200} << 20;
  auto endless = Issue(large, {});
  const auto quick = Issue(1000, {});
  EXPECT_EQ(Issue(1000, {}), nullptr);  // two at most
  quick->Answer(std::string(kContentMacBytes, '?'));
  proofs_.Work();
  proofs_.Work();
  EXPECT_TRUE(quick->settled());
  endless = nullptr;
  EXPECT_FALSE(proofs_.Work());
  EXPECT_NE(Issue(1000, {}), nullptr);
}

TEST_F(ContentProofsTest, ATenantsManyDoNotHoldUpAnothersOne) {
  ContentProofs proofs(&device_, &random_, 100);
  std::vector<std::shared_ptr<ContentChallenge>> reds;
  for (int i = 0; i < 20; ++i) reds.push_back(Issue(1000, {}, "red", &proofs));
  const auto blue = Issue(1000, {}, "blue", &proofs);
  blue->Answer(std::string(kContentMacBytes, '?'));
  for (const auto& red : reds) red->Answer(std::string(kContentMacBytes, '?'));
  EXPECT_TRUE(proofs.Work());
  EXPECT_TRUE(reds[0]->settled());
  EXPECT_TRUE(proofs.Work());
  EXPECT_TRUE(blue->settled());
  // Those that nobody waits for any more cost their tenant no turn.
  reds[1] = reds[2] = nullptr;
  const auto green = Issue(1000, {}, "green", &proofs);
  EXPECT_TRUE(proofs.Work());
  EXPECT_TRUE(reds[3]->settled());
  while (proofs.Work()) {
  }
  EXPECT_TRUE(reds[19]->settled());
}

}  // namespace
}  // namespace djinn::worker
