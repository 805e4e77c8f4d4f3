#include "scheduler/quota/rate_budget.h"

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

RateBudget::Tenant Tenant(const std::string& name, double nominal,
                          const std::string& cohort = "") {
  return {.name = name, .cohort = cohort, .quota = {.nominal = nominal}};
}

class RateBudgetTest : public testing::Test {
 protected:
  // Lets `seconds` pass while the tenants use what they are granted, if they
  // want it. Returns what was granted to "a".
  double Pass(int seconds, bool a_wants, bool b_wants) {
    const double before = used_["a"];
    for (int i = 0; i < 10 * seconds; ++i) {
      now_ += absl::Milliseconds(100);
      EXPECT_TRUE(budget_.Due(now_));
      if (a_wants) Use("a");
      if (b_wants) Use("b");
      budget_.Advance(now_, used_);
    }
    return used_["a"] - before;
  }
  void Use(const std::string& tenant) {
    double* const allowance = budget_.Allowance(tenant);
    used_[tenant] += *allowance;
    *allowance = 0;
    budget_.NoteWaiting(tenant, now_);
  }

  RateBudget budget_{0.02, 60};
  absl::Duration now_;
  std::map<std::string, double> used_;
};

TEST_F(RateBudgetTest, ACohortsOwnRateIsBorrowed) {
  budget_.Configure({Tenant("a", 0.5, "lab"), Tenant("b", 0, "lab")},
                    {{.cohort = "lab", .quota = {.nominal = 0.25}}});
  Pass(60, true, false);
  EXPECT_NEAR(Pass(20, true, false), 20 * 0.75, 0.5);
  EXPECT_NEAR(budget_.ShareOf("a").borrowed, 0.25, 1e-9);
}

TEST_F(RateBudgetTest, AnotherRateIsTriedWithoutBeingShared) {
  budget_.Configure({Tenant("a", 1, "lab"), Tenant("b", 1, "lab")});
  Pass(60, true, false);
  EXPECT_NEAR(budget_.ShareOf("a").borrowed, 1, 1e-9);
  const auto shares = budget_.Try(Tenant("a", 3, "lab"), now_);
  EXPECT_NEAR(shares.at("a").own, 3, 1e-9);
  EXPECT_NEAR(shares.at("a").borrowed, 1, 1e-9);
  EXPECT_NEAR(shares.at("b").lent, 1, 1e-9);
  // TryAll() returns what the tenant would get if it wanted more.
  EXPECT_NEAR(budget_.Try(Tenant("b", 3, "lab"), now_).at("b").lent, 3, 1e-9);
  EXPECT_NEAR(budget_.TryAll(Tenant("b", 3, "lab"), now_).own, 3, 1e-9);
  EXPECT_NEAR(budget_.ShareOf("a").borrowed, 1, 1e-9);
}

TEST_F(RateBudgetTest, ATenantGetsItsRateAndOneBurst) {
  budget_.Configure({Tenant("a", 0.5)});
  EXPECT_EQ(budget_.Allowance("stranger"), nullptr);
  EXPECT_EQ(*budget_.Allowance("a"), 5);
  budget_.Advance(now_, used_);
  const double first = Pass(100, true, false);
  EXPECT_NEAR(first, 5 + 50, 0.2);
  EXPECT_NEAR(Pass(100, true, false), 50, 0.2);
  EXPECT_NEAR(budget_.RateOf("a"), 0.5, 0.01);
  // Idling fills one burst and no more.
  Pass(1000, false, false);
  EXPECT_EQ(*budget_.Allowance("a"), 5);
}

TEST_F(RateBudgetTest, UnusedRateIsBorrowedAndReturned) {
  budget_.Configure({Tenant("a", 0.5, "c"), Tenant("b", 0.5, "c")});
  budget_.Advance(now_, used_);
  Pass(30, true, false);
  EXPECT_NEAR(Pass(30, true, false), 30, 0.5);
  EXPECT_NEAR(budget_.ShareOf("a").borrowed, 0.5, 0.01);
  EXPECT_NEAR(budget_.ShareOf("b").lent, 0.5, 0.01);
  Pass(1, true, true);
  EXPECT_EQ(budget_.ShareOf("a").borrowed, 0);
  EXPECT_NEAR(Pass(30, true, true), 15, 0.2);
}

TEST_F(RateBudgetTest, CohortsNest) {
  budget_.Configure({Tenant("a", 0.5, "lab"), Tenant("b", 0.5, "lab/vision"),
                     Tenant("idle", 1, "lab/vision"),
                     Tenant("other", 1, "labour")});
  budget_.Advance(now_, used_);
  Pass(30, true, false);
  EXPECT_NEAR(Pass(30, true, false), 60, 0.5);
  EXPECT_NEAR(budget_.ShareOf("a").borrowed, 1.5, 0.01);
  EXPECT_NEAR(budget_.WeightedShareOf("a"), 1.5 / 2, 0.01);
  // A tenant in the lender's cohort comes first.
  Pass(1, true, true);
  EXPECT_NEAR(budget_.ShareOf("b").borrowed, 1, 0.01);
  EXPECT_EQ(budget_.ShareOf("a").borrowed, 0);
  EXPECT_EQ(budget_.ShareOf("other").lent, 0);
}

TEST_F(RateBudgetTest, AChangeKeepsWhatIsLeft) {
  budget_.Configure({Tenant("a", 1)});
  *budget_.Allowance("a") = 1;
  budget_.Configure({Tenant("a", 2), Tenant("b", 1)});
  EXPECT_EQ(*budget_.Allowance("a"), 1);
  EXPECT_EQ(*budget_.Allowance("b"), 10);
  budget_.Configure({Tenant("b", 1)});
  EXPECT_EQ(budget_.Allowance("a"), nullptr);
}

}  // namespace
}  // namespace djinn::scheduler
