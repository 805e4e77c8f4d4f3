// Checks the promises of quota_tree.h over random trees and random requests.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::scheduler {
namespace {

constexpr int kTrees = 5000;
constexpr int kSteps = 60;
constexpr const char* kCohorts[] = {"", "c", "c/x", "c/x/y", "c/z", "d"};

class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed) {
    const int count = 2 + Draw(6);
    for (int i = 0; i < count; ++i) {
      TenantQuota tenant;
      tenant.tenant = absl::StrCat("t", i);
      tenant.cohort = kCohorts[Draw(std::size(kCohorts))];
      tenant.weight = (1 + Draw(12)) / 4.0;
      for (Quota& quota : tenant.quotas) {
        if (Draw(8) == 0) continue;
        quota.nominal = Draw(100);
        if (Draw(3) == 0) quota.borrowing_limit = Draw(60);
        if (Draw(3) == 0) quota.lending_limit = Draw(120);
      }
      tenants_.push_back(tenant);
    }
    for (const char* name : kCohorts) {
      if (*name == '\0' || Draw(2) == 0) continue;
      CohortQuota cohort;
      cohort.cohort = name;
      cohort.weight = (1 + Draw(12)) / 4.0;
      const bool root = RootOf(name) == name;
      for (Quota& quota : cohort.quotas) {
        if (Draw(3) == 0) continue;
        quota.nominal = Draw(2) == 0 ? 0 : Draw(50);
        if (!root && Draw(3) == 0) quota.borrowing_limit = Draw(60);
        if (!root && Draw(3) == 0) quota.lending_limit = Draw(80);
      }
      cohorts_.push_back(cohort);
    }
    tree_.Configure(tenants_, cohorts_);
  }

  void Run() {
    for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) {
      const TenantQuota& tenant = tenants_[Draw(tenants_.size())];
      if (Draw(3) == 0) {
        GiveBack(tenant);
      } else {
        Ask(tenant);
      }
      CheckInvariants();
    }
  }

 private:
  int Draw(size_t below) { return static_cast<int>(random_() % below); }

  static std::string RootOf(const std::string& cohort) {
    return cohort.substr(0, cohort.find('/'));
  }
  static bool IsIn(const std::string& inner, const std::string& outer) {
    return inner == outer || absl::StartsWith(inner, outer + "/");
  }
  int64_t Used(const TenantQuota& tenant, size_t i) const {
    return tree_.Used(tenant.tenant, static_cast<Resource>(i));
  }

  void GiveBack(const TenantQuota& tenant) {
    Amounts back;
    for (size_t i = 0; i < kResources; ++i) {
      back[i] = Draw(static_cast<size_t>(Used(tenant, i)) + 1);
    }
    tree_.Give(tenant.tenant, back);
  }

  void Ask(const TenantQuota& tenant) {
    Amounts asked;
    bool own = true;
    for (size_t i = 0; i < kResources; ++i) {
      asked[i] = Draw(60);
      own &= Used(tenant, i) + asked[i] <= tenant.quotas[i].nominal;
    }
    // A tenant gets its nominal quota back from borrowers.
    for (int turns = 0; own && tree_.Check(tenant.tenant, asked); ++turns) {
      ASSERT_LT(turns, 1000);
      const std::optional<std::string> from =
          tree_.Reclaim(tenant.tenant, asked);
      ASSERT_TRUE(from.has_value());
      Amounts some = {};
      for (size_t i = 0; i < kResources; ++i) {
        some[i] = std::min<int64_t>(
            1 + Draw(5), tree_.Borrowed(*from, static_cast<Resource>(i)));
      }
      tree_.Give(*from, some);
    }
    const auto breach = tree_.Check(tenant.tenant, asked);
    if (!breach.has_value()) return tree_.Take(tenant.tenant, asked);
    ASSERT_GT(breach->used + breach->asked, breach->limit);
    ASSERT_FALSE(own);
  }

  void CheckInvariants() {
    for (size_t i = 0; i < kResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      std::map<std::string, int64_t> debts;
      for (const TenantQuota& tenant : tenants_) {
        const Quota& quota = tenant.quotas[i];
        const int64_t used = Used(tenant, i);
        const int64_t lent = tree_.Lent(tenant.tenant, resource);
        const int64_t borrowed = tree_.Borrowed(tenant.tenant, resource);
        ASSERT_GE(used, 0);
        ASSERT_EQ(borrowed, std::max<int64_t>(0, used - quota.nominal));
        if (tenant.cohort.empty()) {
          ASSERT_EQ(borrowed, 0);
          ASSERT_EQ(lent, 0);
          continue;
        }
        if (quota.borrowing_limit.has_value()) {
          ASSERT_LE(borrowed, *quota.borrowing_limit);
        }
        // A tenant lends neither its guaranteed part nor what it uses.
        ASSERT_GE(lent, 0);
        ASSERT_LE(lent, std::max<int64_t>(0, quota.nominal - used));
        if (quota.lending_limit.has_value()) {
          ASSERT_LE(lent, *quota.lending_limit);
        }
        if (!quota.limited()) {
          ASSERT_EQ(lent, 0);
        }
        debts[RootOf(tenant.cohort)] += borrowed - lent;
      }
      // Borrowed amounts that no tenant lends belong to cohorts.
      std::map<std::string, int64_t> own;
      for (const CohortQuota& cohort : cohorts_) {
        if (!cohort.quotas[i].limited()) continue;
        own[RootOf(cohort.cohort)] += cohort.quotas[i].nominal;
      }
      for (const auto& [root, debt] : debts) {
        ASSERT_GE(debt, 0) << root;
        ASSERT_LE(debt, own[root]) << root;
      }
      for (const CohortQuota& cohort : cohorts_) CheckCohort(cohort, i);
    }
  }

  void CheckCohort(const CohortQuota& cohort, size_t i) {
    const Quota& quota = cohort.quotas[i];
    if (!quota.limited()) return;
    int64_t lent = 0;
    int64_t borrowed = 0;
    int64_t own = 0;
    for (const TenantQuota& tenant : tenants_) {
      if (!IsIn(tenant.cohort, cohort.cohort)) continue;
      lent += tree_.Lent(tenant.tenant, static_cast<Resource>(i));
      borrowed += tree_.Borrowed(tenant.tenant, static_cast<Resource>(i));
    }
    for (const CohortQuota& inner : cohorts_) {
      if (!IsIn(inner.cohort, cohort.cohort) || !inner.quotas[i].limited()) {
        continue;
      }
      own += inner.quotas[i].nominal;
    }
    if (quota.lending_limit.has_value()) {
      ASSERT_LE(lent - borrowed, *quota.lending_limit) << cohort.cohort;
    }
    if (quota.borrowing_limit.has_value()) {
      ASSERT_LE(borrowed - lent - own, *quota.borrowing_limit) << cohort.cohort;
    }
  }

  std::mt19937_64 random_;
  std::vector<TenantQuota> tenants_;
  std::vector<CohortQuota> cohorts_;
  QuotaTree tree_;
};

TEST(QuotaPropertyTest, LentIsBorrowedAndNominalIsRestored) {
  for (uint64_t seed = 1; seed <= kTrees; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Case(seed).Run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace djinn::scheduler
