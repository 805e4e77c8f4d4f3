#include "client_lib/session/model/address_space.h"

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint64_t kUnit = AddressSpace::kGranularity;

TEST(AddressSpaceTest, RangesFollowEachOther) {
  AddressSpace space(100 * kUnit);
  AddressRange a, b, c, d;
  ASSERT_TRUE(space.Take(0, &a));
  ASSERT_TRUE(space.Take(kUnit - 1, &b));
  ASSERT_TRUE(space.Take(kUnit, &c));
  ASSERT_TRUE(space.Take(1, &d));
  EXPECT_EQ(a.begin(), 0u);
  EXPECT_EQ(b.begin(), kUnit);
  EXPECT_EQ(c.begin(), 2 * kUnit);
  EXPECT_EQ(c.size_bytes(), 2 * kUnit);
  EXPECT_EQ(d.begin(), 4 * kUnit);
}

TEST(AddressSpaceTest, ReleasedRangeIsReusedOnceTheEndIsReached) {
  AddressSpace space(4 * kUnit);
  AddressRange a, b, c;
  ASSERT_TRUE(space.Take(0, &a));
  space.Release(&a);
  space.Release(&a);
  ASSERT_TRUE(space.Take(0, &a));
  ASSERT_TRUE(space.Take(0, &b));
  ASSERT_TRUE(space.Take(0, &c));
  EXPECT_EQ(a.begin(), kUnit);
  EXPECT_EQ(b.begin(), 2 * kUnit);
  EXPECT_EQ(c.begin(), 3 * kUnit);
  space.Release(&b);
  ASSERT_TRUE(space.Take(0, &b));
  EXPECT_EQ(b.begin(), 0u);
}

TEST(AddressSpaceTest, RangesInUseAreSkipped) {
  AddressSpace space(10 * kUnit);
  AddressRange kept, other, large;
  ASSERT_TRUE(space.Take(0, &other));
  ASSERT_TRUE(space.Take(0, &kept));
  space.Release(&other);
  // The range fits neither in the remaining gap nor in the one before `kept`.
  ASSERT_TRUE(space.Take(5 * kUnit, &large));
  EXPECT_EQ(large.begin(), 2 * kUnit);
  space.Release(&large);
  ASSERT_TRUE(space.Take(5 * kUnit, &large));
  EXPECT_EQ(large.begin(), 2 * kUnit);
  ASSERT_TRUE(space.Take(0, &other));
  EXPECT_EQ(other.begin(), 8 * kUnit);
  EXPECT_EQ(kept.begin(), kUnit);
}

TEST(AddressSpaceTest, WhereThereIsNoGapNothingIsTaken) {
  AddressSpace space(4 * kUnit);
  AddressRange a, b, c;
  EXPECT_FALSE(space.Take(4 * kUnit, &a));
  EXPECT_FALSE(space.Take(UINT64_MAX, &a));
  EXPECT_EQ(a.size_bytes(), 0u);
  ASSERT_TRUE(space.Take(kUnit, &a));
  ASSERT_TRUE(space.Take(kUnit, &b));
  EXPECT_FALSE(space.Take(0, &c));
  space.Release(&c);
  space.Release(&a);
  EXPECT_FALSE(space.Take(2 * kUnit, &c));
  ASSERT_TRUE(space.Take(kUnit, &c));
  EXPECT_EQ(c.begin(), 0u);
}

TEST(AddressSpaceTest, NoTwoShareAnAddress) {
  constexpr uint64_t kUnits = 64;
  std::mt19937 random(1);
  AddressSpace space(kUnits * kUnit);
  std::vector<std::unique_ptr<AddressRange>> live;
  int refused = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 && !live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      space.Release(live.back().get());
      live.pop_back();
      continue;
    }
    const uint64_t bytes = random() % (8 * kUnit);
    auto range = std::make_unique<AddressRange>();
    std::vector<bool> used(kUnits);
    for (const auto& other : live) {
      for (uint64_t i = 0; i < other->size_bytes() / kUnit; ++i) {
        used[other->begin() / kUnit + i] = true;
      }
    }
    const uint64_t units = bytes / kUnit + 1;
    if (space.Take(bytes, range.get())) {
      ASSERT_EQ(range->size_bytes(), units * kUnit);
      ASSERT_LE(range->begin() / kUnit + units, kUnits);
      for (uint64_t i = 0; i < units; ++i) {
        ASSERT_FALSE(used[range->begin() / kUnit + i]) << step;
      }
      live.push_back(std::move(range));
      continue;
    }
    ++refused;
    uint64_t gap = 0;
    for (const bool unit : used) {
      gap = unit ? 0 : gap + 1;
      ASSERT_LT(gap, units) << step;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace djinn
