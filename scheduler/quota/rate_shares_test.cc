#include "scheduler/quota/rate_shares.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

TEST(RateSharesTest, NominalFirstThenByWeight) {
  const std::vector<RateShare> shares = ShareRates({
      {.quota = {.nominal = 1}, .weight = 3},
      {.quota = {.nominal = 1}, .weight = 1},
      {.quota = {.nominal = 5, .lending_limit = 4}, .demand = 0.5},
  });
  EXPECT_DOUBLE_EQ(shares[0].own + shares[0].borrowed, 1 + 3);
  EXPECT_DOUBLE_EQ(shares[1].own + shares[1].borrowed, 1 + 1);
  EXPECT_DOUBLE_EQ(shares[2].own, 0.5);
  EXPECT_DOUBLE_EQ(shares[2].lent, 4);
}

TEST(RateSharesTest, WhoWantsItsOwnAgainHasIt) {
  std::vector<RateDemand> demands = {{.quota = {.nominal = 1}},
                                     {.quota = {.nominal = 1}, .demand = 0}};
  EXPECT_DOUBLE_EQ(ShareRates(demands)[0].borrowed, 1);
  demands[1].demand = 5;
  EXPECT_DOUBLE_EQ(ShareRates(demands)[0].borrowed, 0);
  EXPECT_DOUBLE_EQ(ShareRates(demands)[1].own, 1);
}

TEST(RateSharesTest, WhatOneDoesNotWantTheOthersGet) {
  const std::vector<RateShare> shares = ShareRates({
      {.quota = {.nominal = 0, .borrowing_limit = 1}},
      {.quota = {.nominal = 0}, .demand = 2},
      {.quota = {.nominal = 0}},
      {.quota = {.nominal = 12}, .demand = 0},
  });
  EXPECT_DOUBLE_EQ(shares[0].borrowed, 1);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[2].borrowed, 9);
  EXPECT_DOUBLE_EQ(shares[3].lent, 12);
}

TEST(RateSharesTest, LentIsBorrowedAndNobodyExceedsItsLimits) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> draw(0, 4);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<RateDemand> demands(1 + random() % 8);
    for (RateDemand& tenant : demands) {
      tenant.quota.nominal = random() % 4 == 0 ? 0 : draw(random);
      if (random() % 2 == 0) tenant.quota.borrowing_limit = draw(random);
      if (random() % 2 == 0) tenant.quota.lending_limit = draw(random);
      tenant.weight = 0.25 + draw(random);
      if (random() % 3 != 0) tenant.demand = 2 * draw(random);
    }
    const std::vector<RateShare> shares = ShareRates(demands);
    double lent = 0;
    double borrowed = 0;
    bool wants = false;
    double lendable = 0;
    for (size_t i = 0; i < demands.size(); ++i) {
      const RateQuota& quota = demands[i].quota;
      const RateShare& share = shares[i];
      lent += share.lent;
      borrowed += share.borrowed;
      ASSERT_DOUBLE_EQ(share.own, std::min(demands[i].demand, quota.nominal));
      ASSERT_LE(share.own + share.lent, quota.nominal + 1e-9);
      ASSERT_LE(share.lent, quota.lending_limit.value_or(1e9) + 1e-9);
      ASSERT_LE(share.borrowed, quota.borrowing_limit.value_or(1e9) + 1e-9);
      ASSERT_LE(share.own + share.borrowed, demands[i].demand + 1e-9);
      lendable += std::min(quota.nominal - share.own,
                           quota.lending_limit.value_or(1e9));
      wants |=
          std::min(demands[i].demand - share.own,
                   quota.borrowing_limit.value_or(1e9)) > share.borrowed + 1e-9;
    }
    ASSERT_NEAR(lent, borrowed, 1e-9);
    // Nothing that may be lent is left while anybody wants more.
    if (wants) {
      ASSERT_NEAR(borrowed, lendable, 1e-9);
    }
  }
}

}  // namespace
}  // namespace djinn::scheduler
