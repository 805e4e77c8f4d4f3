#include "gpu_worker/store/content_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/hash/content_proof.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/store/content_proofs.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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
  // Another tenant's content is its own.
  EXPECT_NE(Insert("b", 1, 8), buffer);
  EXPECT_EQ(cache_.List().size(), 2u);
}

TEST_F(ContentCacheTest, OffersToOthersWhatTenantsShare) {
  const std::shared_ptr<Buffer> a = Insert("a", 1, 8);
  const std::shared_ptr<Buffer> b = Insert("b", 1, 8);
  Insert("c", 1, 8);
  cache_.SetSharing({"a", "b", "d"});
  // One of them is as good as the other.
  EXPECT_EQ(cache_.FindShared("d", {1, 0}, 8), a);
  EXPECT_EQ(cache_.FindShared("d", {1, 0}, 9), nullptr);
  EXPECT_EQ(cache_.FindShared("c", {1, 0}, 8), nullptr);
  cache_.SetSharing({"b", "d"});
  EXPECT_EQ(cache_.FindShared("d", {1, 0}, 8), b);
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

TEST(ContentCacheIdleTest, ReportsTheIdleTimeOfEvictedContents) {
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
  Insert("a", 2, 1000, absl::Seconds(20));  // expensive, but large
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
  // Each evicted content raises the value of new ones.
  for (uint64_t hash = 2; hash < 12 && Has("a", 1, 100); ++hash) {
    Insert("a", hash, 100);
    cache_.EvictIdle(1);
  }
  EXPECT_FALSE(Has("a", 1, 100));
}

TEST_F(ContentCacheTest, IdleContentsOfOneTenantDoNotCrowdOutAnothers) {
  // The content is cheap, old and never used again.
  Insert("blue", 1, 100, absl::Milliseconds(1));
  for (uint64_t hash = 2; hash <= 5; ++hash) {
    Insert("red", hash, 100, absl::Hours(1));
    cache_.Find("red", {hash, 0}, 100);
  }
  cache_.EvictIdle(300);
  EXPECT_TRUE(Has("blue", 1, 100));
  EXPECT_TRUE(Has("red", 5, 100));
  EXPECT_EQ(cache_.List().size(), 2u);
  // Contents in use do not count towards a tenant's share.
  const std::shared_ptr<Buffer> used = Insert("blue", 6, 1000);
  Insert("red", 7, 100, absl::Hours(1));
  cache_.EvictIdle(100);
  EXPECT_TRUE(Has("blue", 1, 100));
  // All idle contents are evicted when necessary.
  cache_.EvictIdle(10000);
  EXPECT_EQ(cache_.List().size(), 1u);
}

TEST_F(ContentCacheTest, KeepsAsManyIdleBytesAsItMay) {
  const std::shared_ptr<Buffer> used = Insert("a", 1, 1000);
  for (uint64_t hash = 2; hash <= 5; ++hash) Insert("a", hash, 100);
  cache_.KeepIdle(400);
  EXPECT_EQ(cache_.List().size(), 5u);
  cache_.KeepIdle(250);
  EXPECT_EQ(cache_.List().size(), 3u);
  EXPECT_EQ(cache_.stats().idle_bytes, 200u);
  cache_.KeepIdle(0);
  EXPECT_EQ(cache_.stats().idle_bytes, 0u);
  EXPECT_TRUE(Has("a", 1, 1000));
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

TEST_F(ContentCacheTest, SharedContentStaysTheOtherTenants) {
  cache_.SetSharing({"red", "blue"});
  cache_.Adopt("blue", {1, 0}, Insert("red", 1, 100));
  for (uint64_t hash = 2; hash < 5; ++hash) {
    Insert("red", hash, 100, absl::Hours(1));
  }
  cache_.EvictIdle(200);
  EXPECT_TRUE(Has("blue", 1, 100));
  EXPECT_FALSE(Has("red", 1, 100));
  // The limit on contents is shared as well: the content now counts as sent by
  // the other tenant.
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
  // From now on each new content evicts one of its own tenant.
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
  // All contents are in use: the new one is not kept, but still works.
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
  std::shared_ptr<ContentChallenge> Issue(uint64_t bytes,
                                          std::shared_ptr<Buffer> candidate,
                                          const std::string& tenant = "red",
                                          ContentProofs* proofs = nullptr) {
    return (proofs == nullptr ? proofs_ : *proofs)
        .Issue(
            tenant, bytes, std::move(candidate), [this] { ++settled_; },
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
  const std::shared_ptr<Buffer> right = Allocate(wanted);
  const auto challenge = Issue(1000, right);
  challenge->Answer(ProveContent(challenge->key(), wanted));
  EXPECT_FALSE(challenge->settled());
  while (proofs_.Work()) {
  }
  EXPECT_TRUE(challenge->settled());
  EXPECT_EQ(settled_, 1);
  EXPECT_EQ(charged_, ContentProofs::TimeOf(1000));
  EXPECT_EQ(challenge->Take(), right);
  const auto wrong = Issue(1000, Allocate(std::string(1000, 'o')));
  wrong->Answer(ProveContent(wrong->key(), wanted));
  while (proofs_.Work()) {
  }
  EXPECT_EQ(wrong->Take(), nullptr);
}

TEST_F(ContentProofsTest, WorkWithoutACandidateCostsTheSameAndProvesNothing) {
  const std::string bytes(1000, '\0');
  const auto challenge = Issue(1000, {});
  while (proofs_.Work()) {
  }
  // It costs what it costs with one.
  EXPECT_EQ(charged_, ContentProofs::TimeOf(1000));
  // Even a proof of the bytes that were hashed instead does not count.
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

TEST_F(ContentProofsTest, LongProofTakesTurnsAndEndsWithoutWaiter) {
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
  // Destroyed challenges cost their tenant no turn.
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
