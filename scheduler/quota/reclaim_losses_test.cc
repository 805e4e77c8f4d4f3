#include "scheduler/quota/reclaim_losses.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

class ReclaimLossesTest : public testing::Test {
 protected:
  absl::Duration Left() { return losses_.Left("red", now_); }

  ReclaimLosses losses_{absl::Seconds(100)};
  absl::Duration now_ = absl::Hours(1);
};

TEST_F(ReclaimLossesTest, LossReducesTheAllowanceForAMinute) {
  losses_.Add("red", absl::Seconds(70), now_);
  EXPECT_EQ(Left(), absl::Seconds(30));
  EXPECT_EQ(losses_.Left("blue", now_), absl::InfiniteDuration());
  now_ += absl::Seconds(40);
  losses_.Add("red", absl::Seconds(20), now_);
  EXPECT_EQ(Left(), absl::Seconds(10));
  EXPECT_EQ(losses_.Lost("red", now_), absl::Seconds(90));
  now_ += absl::Seconds(20);
  EXPECT_EQ(Left(), absl::Seconds(80));
  now_ += absl::Seconds(40);
  EXPECT_EQ(Left(), absl::InfiniteDuration());
}

TEST_F(ReclaimLossesTest, FreeReclaimIsNoLoss) {
  losses_.Add("red", absl::ZeroDuration(), now_);
  EXPECT_EQ(Left(), absl::InfiniteDuration());
}

TEST_F(ReclaimLossesTest, TheFirstAfterAMinuteMayCostMoreThanTheLimit) {
  losses_.Add("red", absl::Hours(9), now_);
  EXPECT_EQ(Left(), absl::ZeroDuration());
  now_ += absl::Seconds(60);
  EXPECT_EQ(Left(), absl::InfiniteDuration());
}

TEST_F(ReclaimLossesTest, AllVictimsOfOneReclaimCountTogether) {
  losses_.Add("red", absl::Seconds(40), now_);
  ReclaimLosses::Allowance allowance = losses_.ForOne(now_);
  EXPECT_TRUE(allowance.Take("red", absl::Seconds(35)));
  EXPECT_FALSE(allowance.Take("red", absl::Seconds(30)));
  EXPECT_TRUE(allowance.Take("red", absl::Seconds(25)));
  EXPECT_TRUE(allowance.Take("red", absl::ZeroDuration()));
  EXPECT_TRUE(allowance.Take("blue", absl::Hours(1)));
  ReclaimLosses::Allowance anything;
  EXPECT_TRUE(anything.Take("red", absl::Hours(1)));
}

TEST_F(ReclaimLossesTest, SmallOnesDoNotKeepALargeOneWaiting) {
  for (int i = 0; i < 6; ++i) {
    losses_.Add("red", absl::Seconds(1), now_);
    losses_.PutOff("red", absl::Seconds(500), now_);
    EXPECT_LT(Left(), absl::Seconds(100));
    now_ += absl::Seconds(10);
  }
  EXPECT_EQ(Left(), absl::InfiniteDuration());
  losses_.Add("red", absl::Seconds(500), now_);
  EXPECT_EQ(Left(), absl::ZeroDuration());
  losses_.PutOff("red", absl::Seconds(500), now_);
  now_ += absl::Seconds(59);
  EXPECT_EQ(Left(), absl::ZeroDuration());
}

TEST_F(ReclaimLossesTest, PostponementEndsWithoutRequests) {
  losses_.Add("red", absl::Seconds(70), now_);
  losses_.PutOff("red", absl::Seconds(40), now_);
  now_ += absl::Minutes(10);
  losses_.Add("red", absl::Seconds(80), now_);
  EXPECT_EQ(Left(), absl::Seconds(20));
}

TEST_F(ReclaimLossesTest, CompletedReclaimIsNoLongerPutOff) {
  losses_.Add("red", absl::Seconds(70), now_);
  losses_.PutOff("red", absl::Seconds(40), now_);
  now_ += absl::Seconds(60);
  losses_.Add("red", absl::Seconds(40), now_);
  EXPECT_EQ(Left(), absl::Seconds(60));
}

// Small reclaims come all the time, and a large one whenever the previous large
// one has succeeded.
TEST(ReclaimLossesPropertyTest, NoMinuteCostsMoreThanTheLimitAndOneReclaim) {
  constexpr absl::Duration kLimit = absl::Seconds(100);
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto draw = [&](int below) {
      return static_cast<int>(random() % static_cast<uint64_t>(below));
    };
    ReclaimLosses losses(kLimit);
    std::deque<std::pair<absl::Duration, absl::Duration>> last_minute;
    absl::Duration now, large, put_off = absl::InfiniteDuration();
    const auto reclaim = [&](absl::Duration lost) {
      if (lost > losses.Left("red", now)) {
        losses.PutOff("red", lost, now);
        return false;
      }
      losses.Add("red", lost, now);
      last_minute.emplace_back(now, lost);
      while (now - last_minute.front().first >= ReclaimLosses::kWindow) {
        last_minute.pop_front();
      }
      absl::Duration sum, most;
      for (const auto& [when, one] : last_minute) {
        sum += one;
        most = std::max(most, one);
      }
      EXPECT_LE(sum, kLimit + most);
      return true;
    };
    for (int step = 0; step < 100; ++step) {
      now += absl::Seconds(draw(20));
      if (large == absl::ZeroDuration()) {
        large = kLimit + absl::Seconds(1 + draw(1000));
        put_off = now;
      }
      if (reclaim(large)) {
        large = absl::ZeroDuration();
      } else {
        ASSERT_LT(now - put_off, ReclaimLosses::kWindow);
      }
      reclaim(absl::Seconds(draw(50)));
    }
  }
}

}  // namespace
}  // namespace djinn::scheduler
