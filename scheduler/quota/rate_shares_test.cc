#include "scheduler/quota/rate_shares.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

TEST(RateSharesTest, NominalFirstThenByWeight) {
  const std::vector<RateShare> shares = ShareRates({
      {.cohort = "c", .quota = {.nominal = 1}, .weight = 3},
      {.cohort = "c", .quota = {.nominal = 1}, .weight = 1},
      {.cohort = "c",
       .quota = {.nominal = 5, .lending_limit = 4},
       .demand = 0.5},
  });
  EXPECT_DOUBLE_EQ(shares[0].own + shares[0].borrowed, 1 + 3);
  EXPECT_DOUBLE_EQ(shares[1].own + shares[1].borrowed, 1 + 1);
  EXPECT_DOUBLE_EQ(shares[2].own, 0.5);
  EXPECT_DOUBLE_EQ(shares[2].lent, 4);
}

TEST(RateSharesTest, OwnerGetsItsRateBack) {
  std::vector<RateDemand> demands = {
      {.cohort = "c", .quota = {.nominal = 1}},
      {.cohort = "c", .quota = {.nominal = 1}, .demand = 0}};
  EXPECT_DOUBLE_EQ(ShareRates(demands)[0].borrowed, 1);
  demands[1].demand = 5;
  EXPECT_DOUBLE_EQ(ShareRates(demands)[0].borrowed, 0);
  EXPECT_DOUBLE_EQ(ShareRates(demands)[1].own, 1);
}

TEST(RateSharesTest, UnwantedRateGoesToTheOthers) {
  const std::vector<RateShare> shares = ShareRates({
      {.cohort = "c", .quota = {.nominal = 0, .borrowing_limit = 1}},
      {.cohort = "c", .quota = {.nominal = 0}, .demand = 2},
      {.cohort = "c", .quota = {.nominal = 0}},
      {.cohort = "c", .quota = {.nominal = 12}, .demand = 0},
  });
  EXPECT_DOUBLE_EQ(shares[0].borrowed, 1);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[2].borrowed, 9);
  EXPECT_DOUBLE_EQ(shares[3].lent, 12);
}

TEST(RateSharesTest, WithoutACohortNothingIsLent) {
  const std::vector<RateShare> shares = ShareRates({
      {.quota = {.nominal = 1}},
      {.quota = {.nominal = 3}, .demand = 1},
  });
  EXPECT_EQ(shares[0].own, 1);
  EXPECT_EQ(shares[0].borrowed, 0);
  EXPECT_EQ(shares[1].own, 1);
  EXPECT_EQ(shares[1].lent, 0);
  EXPECT_EQ(shares[1].lendable, 0);
}

TEST(RateSharesTest, UnusedRateStaysInItsCohortFirst) {
  std::vector<RateDemand> demands = {
      {.cohort = "lab/vision", .quota = {.nominal = 2}, .demand = 4},
      {.cohort = "lab/vision", .quota = {.nominal = 5}, .demand = 0},
      {.cohort = "lab", .quota = {.nominal = 1}, .weight = 100},
      {.cohort = "lab/speech", .quota = {.nominal = 1}},
      {.cohort = "other", .quota = {.nominal = 1}},
  };
  std::vector<RateShare> shares = ShareRates(demands);
  EXPECT_DOUBLE_EQ(shares[0].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[1].lent, 5);
  // Parts are by weight; a cohort has weight 1.
  EXPECT_NEAR(shares[2].borrowed, 300 / 101.0, 1e-12);
  EXPECT_NEAR(shares[3].borrowed, 3 / 101.0, 1e-12);
  EXPECT_EQ(shares[4].borrowed, 0);
  EXPECT_EQ(shares[0].lendable, 9);
  EXPECT_EQ(shares[4].lendable, 1);
  // Only what the members leave goes to others.
  demands[0].demand = 100;
  shares = ShareRates(demands);
  EXPECT_DOUBLE_EQ(shares[0].borrowed, 5);
  EXPECT_EQ(shares[2].borrowed, 0);
}

TEST(RateSharesTest, ACohortBorrowsAsOne) {
  const std::vector<RateShare> shares = ShareRates({
      {.cohort = "lab", .quota = {.nominal = 6}, .demand = 0},
      {.cohort = "lab", .quota = {.nominal = 0}},
      {.cohort = "lab/vision", .quota = {.nominal = 0}, .weight = 2},
      {.cohort = "lab/vision", .quota = {.nominal = 0}, .weight = 4},
      {.cohort = "lab/vision/eyes", .quota = {.nominal = 0}, .demand = 0.25},
  });
  EXPECT_DOUBLE_EQ(shares[0].lent, 6);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 3);
  EXPECT_DOUBLE_EQ(shares[2].borrowed, 2.75 / 3);
  EXPECT_DOUBLE_EQ(shares[3].borrowed, 2.75 * 2 / 3);
  EXPECT_DOUBLE_EQ(shares[4].borrowed, 0.25);
}

TEST(RateSharesTest, ACohortsOwnRateIsForWhoIsInItFirst) {
  const std::vector<RateDemand> demands = {
      {.cohort = "lab/vision", .quota = {.nominal = 1}, .demand = 3},
      {.cohort = "lab", .quota = {.nominal = 0}},
  };
  const std::vector<RateShare> shares =
      ShareRates(demands, {{.cohort = "lab/vision", .quota = {.nominal = 5}}});
  EXPECT_DOUBLE_EQ(shares[0].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 3);
  EXPECT_EQ(shares[0].lent, 0);
  EXPECT_EQ(shares[0].lendable, 6);
}

TEST(RateSharesTest, ACohortLendsAndBorrowsWithinItsLimits) {
  std::vector<RateDemand> demands = {
      {.cohort = "lab/vision", .quota = {.nominal = 10}, .demand = 0},
      {.cohort = "lab/vision", .quota = {.nominal = 0}, .demand = 3},
      {.cohort = "lab", .quota = {.nominal = 1}},
  };
  const std::vector<CohortRate> cohorts = {
      {.cohort = "lab/vision",
       .quota = {.borrowing_limit = 2, .lending_limit = 4}}};
  std::vector<RateShare> shares = ShareRates(demands, cohorts);
  EXPECT_DOUBLE_EQ(shares[0].lent, 3 + 4);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 3);
  EXPECT_DOUBLE_EQ(shares[2].borrowed, 4);
  // Now the cohort wants more than it has.
  demands[0].demand = 10;
  demands[2] = {.cohort = "lab", .quota = {.nominal = 20}, .demand = 0};
  shares = ShareRates(demands, cohorts);
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[2].lent, 2);
}

TEST(RateSharesTest, ACohortsWeightIsItsPartBesideItsSiblings) {
  const std::vector<RateDemand> demands = {
      {.cohort = "lab", .quota = {.nominal = 8}, .demand = 0},
      {.cohort = "lab", .quota = {.nominal = 0}},
      {.cohort = "lab/vision", .quota = {.nominal = 0}},
  };
  const std::vector<RateShare> shares =
      ShareRates(demands, {{.cohort = "lab/vision", .weight = 3}});
  EXPECT_DOUBLE_EQ(shares[1].borrowed, 2);
  EXPECT_DOUBLE_EQ(shares[2].borrowed, 6);
}

// Checks the promises of rate_shares.h over random trees.
class RateSharesPropertyTest : public testing::Test {
 protected:
  static constexpr double kAny = 1e9;
  static constexpr double kNear = 1e-9;
  static constexpr const char* kCohorts[] = {"",      "c",   "c/x", "c/x/y",
                                             "c/x/z", "c/w", "d"};

  // The unused part of a tenant's nominal rate that may be lent, and the rate
  // that it may still borrow.
  static double Spare(const RateDemand& tenant, const RateShare& share) {
    return std::min(tenant.quota.nominal - share.own,
                    tenant.quota.lending_limit.value_or(kAny));
  }
  static double Wanted(const RateDemand& tenant, const RateShare& share) {
    return std::min(tenant.demand - share.own,
                    tenant.quota.borrowing_limit.value_or(kAny));
  }
  static bool IsIn(const std::string& inner, const std::string& outer) {
    return inner == outer || absl::StartsWith(inner, outer + "/");
  }

  void Draw() {
    std::uniform_real_distribution<double> draw(0, 4);
    demands_.assign(1 + random_() % 12, {});
    for (RateDemand& tenant : demands_) {
      tenant.cohort = kCohorts[random_() % std::size(kCohorts)];
      tenant.quota.nominal = random_() % 4 == 0 ? 0 : draw(random_);
      if (random_() % 3 == 0) tenant.quota.borrowing_limit = draw(random_);
      if (random_() % 3 == 0) tenant.quota.lending_limit = draw(random_);
      tenant.weight = 0.25 + draw(random_);
      if (random_() % 3 != 0) tenant.demand = 2 * draw(random_);
    }
    shares_ = ShareRates(demands_);
  }
  // Gives cohorts of the same tenants rates of their own.
  void DrawCohorts() {
    std::uniform_real_distribution<double> draw(0, 4);
    cohorts_.clear();
    for (const std::string cohort : kCohorts) {
      if (cohort.empty() || random_() % 3 == 0) continue;
      CohortRate& rate = cohorts_.emplace_back();
      rate.cohort = cohort;
      rate.weight = 0.25 + draw(random_);
      if (random_() % 2 == 0) rate.quota.nominal = draw(random_);
      if (!absl::StrContains(cohort, '/')) continue;
      if (random_() % 2 == 0) rate.quota.borrowing_limit = draw(random_);
      if (random_() % 2 == 0) rate.quota.lending_limit = draw(random_);
    }
    shares_ = ShareRates(demands_, cohorts_);
  }
  // Returns the sum of the own rates of all cohorts in this one.
  double OwnRate(const std::string& cohort) const {
    double own = 0;
    for (const CohortRate& rate : cohorts_) {
      if (IsIn(rate.cohort, cohort)) own += rate.quota.nominal;
    }
    return own;
  }

  void CheckLimits(const std::string& cohort) {
    double lent = 0;
    double borrowed = 0;
    bool wants_more = false;
    for (size_t i = 0; i < demands_.size(); ++i) {
      if (!IsIn(demands_[i].cohort, cohort)) continue;
      lent += shares_[i].lent;
      borrowed += shares_[i].borrowed;
      wants_more |=
          demands_[i].cohort == cohort &&
          shares_[i].borrowed + kNear < Wanted(demands_[i], shares_[i]);
    }
    if (!absl::StrContains(cohort, '/')) {
      ASSERT_GE(borrowed - lent, -kNear);
      ASSERT_LE(borrowed - lent, OwnRate(cohort) + kNear);
    }
    // Nothing of a cohort is left while a direct member wants it.
    for (size_t i = 0; wants_more && i < demands_.size(); ++i) {
      if (demands_[i].cohort != cohort) continue;
      ASSERT_NEAR(shares_[i].lent, Spare(demands_[i], shares_[i]), kNear);
    }
    for (const CohortRate& rate : cohorts_) {
      if (rate.cohort != cohort) continue;
      if (rate.quota.lending_limit.has_value()) {
        ASSERT_LE(lent - borrowed, *rate.quota.lending_limit + kNear);
      }
      if (rate.quota.borrowing_limit.has_value()) {
        ASSERT_LE(borrowed - lent,
                  OwnRate(cohort) + *rate.quota.borrowing_limit + kNear);
      }
    }
  }

  void CheckTenants() {
    double nominal = 0;
    double granted = 0;
    for (size_t i = 0; i < demands_.size(); ++i) {
      const RateDemand& tenant = demands_[i];
      const RateShare& share = shares_[i];
      ASSERT_EQ(share.own, std::min(tenant.demand, tenant.quota.nominal));
      ASSERT_GE(share.lent, 0);
      ASSERT_LE(share.lent, Spare(tenant, share) + kNear);
      ASSERT_GE(share.borrowed, 0);
      ASSERT_LE(share.borrowed, Wanted(tenant, share) + kNear);
      if (tenant.cohort.empty()) {
        ASSERT_EQ(share.lent + share.borrowed, 0);
      }
      nominal += tenant.quota.nominal;
      granted += share.own + share.borrowed;
    }
    for (const CohortRate& rate : cohorts_) nominal += rate.quota.nominal;
    ASSERT_LE(granted, nominal + kNear);
  }

  void CheckCohort(const std::string& cohort) {
    double lent = 0;
    double borrowed = 0;
    double spare = 0;
    double wanted = 0;
    for (size_t i = 0; i < demands_.size(); ++i) {
      if (!IsIn(demands_[i].cohort, cohort)) continue;
      lent += shares_[i].lent;
      borrowed += shares_[i].borrowed;
      spare += Spare(demands_[i], shares_[i]);
      wanted += Wanted(demands_[i], shares_[i]);
    }
    if (!absl::StrContains(cohort, '/')) {
      ASSERT_NEAR(lent, borrowed, kNear);
      ASSERT_NEAR(borrowed, std::min(spare, wanted), kNear);
    }
    // A cohort lends only what its members leave, and borrows only what it
    // lacks.
    if (borrowed + kNear < wanted) {
      ASSERT_GE(borrowed + kNear, lent);
      ASSERT_NEAR(lent, spare, kNear);
    }
    if (lent + kNear < spare) {
      ASSERT_GE(lent + kNear, borrowed);
    }
    shared_ += lent > borrowed + kNear || borrowed > lent + kNear;
  }

  // Checks that of two tenants of one cohort that both want more, neither has
  // more by weight.
  void CheckWeights() {
    for (size_t a = 0; a < demands_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (demands_[a].cohort != demands_[b].cohort) continue;
        const auto falls_short = [&](size_t i) {
          return shares_[i].borrowed + kNear < Wanted(demands_[i], shares_[i]);
        };
        if (!falls_short(a)) continue;
        const double of_a = shares_[a].borrowed / demands_[a].weight;
        const double of_b = shares_[b].borrowed / demands_[b].weight;
        ASSERT_GE(of_a + kNear, of_b);
        if (falls_short(b)) {
          ASSERT_NEAR(of_a, of_b, kNear);
        }
      }
    }
  }

  std::mt19937_64 random_{1};
  std::vector<RateDemand> demands_;
  std::vector<CohortRate> cohorts_;
  std::vector<RateShare> shares_;
  // Number of cohorts that lent or borrowed as a whole.
  int shared_ = 0;
};

TEST_F(RateSharesPropertyTest, HoldsOverRandomTrees) {
  for (int round = 0; round < 20'000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Draw();
    CheckTenants();
    CheckWeights();
    for (const std::string cohort : kCohorts) {
      if (!cohort.empty()) CheckCohort(cohort);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(shared_, 10'000);
}

TEST_F(RateSharesPropertyTest, HoldsWhereCohortsHaveRates) {
  for (int round = 0; round < 20'000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Draw();
    DrawCohorts();
    CheckTenants();
    CheckWeights();
    for (const std::string cohort : kCohorts) {
      if (!cohort.empty()) CheckLimits(cohort);
    }
    if (HasFatalFailure()) return;
    cohorts_.clear();
  }
}

}  // namespace
}  // namespace djinn::scheduler
