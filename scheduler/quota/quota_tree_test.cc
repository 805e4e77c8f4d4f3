#include "scheduler/quota/quota_tree.h"

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

// Amounts of memory, and of messages, which stand for any two resources.
constexpr Amounts Ask(int64_t memory, int64_t messages = 0) {
  return {memory, messages};
}

TenantQuota Tenant(const std::string& name, const std::string& cohort,
                   Quota memory, Quota messages = {}) {
  return {.tenant = name, .cohort = cohort, .quotas = {memory, messages}};
}

constexpr Resource kMemory = Resource::kMemoryBytes;

TEST(QuotaTreeTest, AloneATenantHasItsNominalQuota) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "", {.nominal = 10})});
  EXPECT_FALSE(tree.Check("a", Ask(10)).has_value());
  tree.Take("a", Ask(6));
  const std::optional<QuotaTree::Breach> breach = tree.Check("a", Ask(5));
  ASSERT_TRUE(breach.has_value());
  EXPECT_EQ(breach->resource, kMemory);
  EXPECT_EQ(breach->limit, 10);
  EXPECT_EQ(breach->used, 6);
  EXPECT_EQ(breach->asked, 5);
  EXPECT_FALSE(breach->may_wait);
  tree.Give("a", Ask(1));
  EXPECT_FALSE(tree.Check("a", Ask(5)).has_value());
}

TEST(QuotaTreeTest, TenantWithoutAQuotaIsNeitherLimitedNorLent) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "c", {.nominal = 10}), Tenant("b", "c", {})});
  EXPECT_FALSE(tree.Check("b", Ask(int64_t{1} << 50)).has_value());
  EXPECT_TRUE(tree.Check("a", Ask(11)).has_value());
  EXPECT_FALSE(tree.Check("stranger", Ask(11)).has_value());
}

TEST(QuotaTreeTest, ACohortLendsWhatItDoesNotUse) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "c", {.nominal = 10}),
                  Tenant("b", "c", {.nominal = 10, .lending_limit = 6}),
                  Tenant("other", "d", {.nominal = 100})});
  EXPECT_FALSE(tree.Check("a", Ask(16)).has_value());
  EXPECT_EQ(tree.Check("a", Ask(17))->limit, 16);
  tree.Take("a", Ask(15));
  EXPECT_EQ(tree.Borrowed("a", kMemory), 5);
  EXPECT_EQ(tree.Lent("b", kMemory), 5);
  // 4 are guaranteed, and 1 more is available.
  EXPECT_FALSE(tree.Check("b", Ask(5)).has_value());
  const std::optional<QuotaTree::Breach> breach = tree.Check("b", Ask(6));
  EXPECT_TRUE(breach->may_wait);
  EXPECT_EQ(breach->limit, 5);
  EXPECT_EQ(tree.Reclaim("b", Ask(6)), "a");
  // The tenant may not reclaim beyond its own quota.
  EXPECT_EQ(tree.Reclaim("b", Ask(11)), std::nullopt);
}

TEST(QuotaTreeTest, BorrowingHasItsLimit) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "c", {.nominal = 10, .borrowing_limit = 2}),
                  Tenant("b", "c", {.nominal = 10})});
  EXPECT_FALSE(tree.Check("a", Ask(12)).has_value());
  const std::optional<QuotaTree::Breach> breach = tree.Check("a", Ask(13));
  EXPECT_EQ(breach->limit, 12);
  EXPECT_FALSE(breach->may_wait);
}

TEST(QuotaTreeTest, ItIsTakenBackFromWhoHasMost) {
  QuotaTree tree;
  std::vector<TenantQuota> tenants = {Tenant("a", "c", {.nominal = 10}),
                                      Tenant("b", "c", {.nominal = 10}),
                                      Tenant("lender", "c", {.nominal = 20})};
  tree.Configure(tenants);
  tree.Take("a", Ask(18));
  tree.Take("b", Ask(22));
  EXPECT_EQ(tree.Reclaim("lender", Ask(20)), "b");
  // Shares are divided by weight.
  tenants[1].weight = 2;
  tree.Configure(tenants);
  EXPECT_EQ(tree.Reclaim("lender", Ask(20)), "a");
  EXPECT_EQ(tree.Reclaim("lender", Ask(20), {"a"}), "b");
  EXPECT_EQ(tree.Reclaim("lender", Ask(20), {"a", "b"}), std::nullopt);
  EXPECT_GT(tree.Share("a"), tree.Share("b"));
  EXPECT_EQ(tree.Share("lender"), 0);
}

TEST(QuotaTreeTest, CohortsNest) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "lab/vision", {.nominal = 10}),
                  Tenant("b", "lab/vision", {.nominal = 10}),
                  Tenant("c", "lab", {.nominal = 5})});
  EXPECT_FALSE(tree.Check("a", Ask(25)).has_value());
  EXPECT_TRUE(tree.Check("a", Ask(26)).has_value());
  tree.Take("a", Ask(22));
  EXPECT_EQ(tree.Reclaim("c", Ask(5)), "a");
  EXPECT_EQ(tree.Lent("b", kMemory) + tree.Lent("c", kMemory), 12);
}

TEST(QuotaTreeTest, WhereAllAreSparedAnotherCohortGivesBack) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "lab/vision", {.nominal = 0}),
                  Tenant("b", "lab/vision", {.nominal = 0}),
                  Tenant("c", "lab/speech", {.nominal = 0}),
                  Tenant("lender", "lab", {.nominal = 20})});
  tree.Take("a", Ask(8));
  tree.Take("b", Ask(6));
  tree.Take("c", Ask(6));
  EXPECT_EQ(tree.Reclaim("lender", Ask(5)), "a");
  EXPECT_EQ(tree.Reclaim("lender", Ask(5), {"a"}), "b");
  EXPECT_EQ(tree.Reclaim("lender", Ask(5), {"a", "b"}), "c");
}

TEST(QuotaTreeTest, ACohortHasAQuotaOfItsOwn) {
  QuotaTree tree;
  CohortQuota vision{.cohort = "lab/vision", .quotas = {Quota{.nominal = 6}}};
  const std::vector<TenantQuota> tenants = {
      Tenant("a", "lab/vision", {.nominal = 10}),
      Tenant("b", "lab/vision", {.nominal = 0}),
      Tenant("c", "lab", {.nominal = 5})};
  tree.Configure(tenants, {vision});
  // The cohort's own quota is available to its members and to other tenants.
  EXPECT_FALSE(tree.Check("b", Ask(21)).has_value());
  EXPECT_FALSE(tree.Check("c", Ask(21)).has_value());
  EXPECT_TRUE(tree.Check("c", Ask(22)).has_value());
  tree.Take("b", Ask(8));
  EXPECT_EQ(tree.Borrowed("b", kMemory), 8);
  // Lent amounts are in proportion to what can be lent; three are the cohort's
  // own.
  EXPECT_EQ(tree.Lent("a", kMemory), 5);
  EXPECT_EQ(tree.Lent("c", kMemory), 0);
}

TEST(QuotaTreeTest, ACohortLendsAndBorrowsWithinItsLimits) {
  QuotaTree tree;
  CohortQuota vision{
      .cohort = "lab/vision",
      .quotas = {
          Quota{.nominal = 0, .borrowing_limit = 3, .lending_limit = 4}}};
  tree.Configure({Tenant("a", "lab/vision", {.nominal = 10}),
                  Tenant("b", "lab/vision", {.nominal = 0}),
                  Tenant("c", "lab", {.nominal = 10})},
                 {vision});
  EXPECT_FALSE(tree.Check("c", Ask(14)).has_value());
  EXPECT_EQ(tree.Check("c", Ask(15))->limit, 14);
  EXPECT_FALSE(tree.Check("c", Ask(15))->may_wait);
  EXPECT_FALSE(tree.Check("b", Ask(13)).has_value());
  EXPECT_EQ(tree.Check("b", Ask(14))->limit, 13);
  // The part that the cohort keeps is available to its members, whatever others
  // use.
  tree.Take("c", Ask(14));
  EXPECT_EQ(tree.Lent("a", kMemory), 4);
  EXPECT_FALSE(tree.Check("b", Ask(6)).has_value());
  EXPECT_TRUE(tree.Check("b", Ask(7)).has_value());
  EXPECT_EQ(tree.Reclaim("a", Ask(10)), "c");
}

TEST(QuotaTreeTest, ItIsTakenBackWhereItIsShort) {
  QuotaTree tree;
  const CohortQuota closed{.cohort = "lab/vision",
                           .quotas = {Quota{.nominal = 0, .lending_limit = 0}}};
  tree.Configure(
      {Tenant("a", "lab/vision", {.nominal = 10}),
       Tenant("b", "lab/vision", {.nominal = 0}),
       Tenant("c", "lab", {.nominal = 10}), Tenant("d", "lab", {.nominal = 0})},
      {closed});
  // b and d use all of a's and c's quota.
  tree.Take("b", Ask(10));
  tree.Take("d", Ask(10));
  // c could not get what b would give back.
  EXPECT_EQ(tree.Reclaim("c", Ask(1)), "d");
  EXPECT_EQ(tree.Reclaim("a", Ask(1)), "b");
  EXPECT_TRUE(tree.MayTakeBack("c", "d", Ask(1)));
  EXPECT_FALSE(tree.MayTakeBack("c", "b", Ask(1)));
  EXPECT_TRUE(tree.MayTakeBack("a", "b", Ask(1)));
}

TEST(QuotaTreeTest, MemoryIsATenantsOwnWhereItHasAQuotaOfIt) {
  const auto with = [](std::vector<Resource> limited) {
    TenantQuota tenant = {.tenant = "a"};
    for (const Resource resource : limited) {
      tenant.quotas[static_cast<size_t>(resource)].nominal = 1000;
    }
    QuotaTree tree;
    tree.Configure({tenant});
    // Amounts of memory, contents, storages, caches and messages.
    return tree.MemoryWithQuota("a", {100, 30, 80, 5, 7});
  };
  EXPECT_EQ(with({}), 0);
  EXPECT_EQ(with({Resource::kMemoryBytes}), 100);
  EXPECT_EQ(with({Resource::kMemoryBytes, Resource::kCacheBytes}), 100);
  EXPECT_EQ(with({Resource::kContentBytes, Resource::kCacheBytes}), 35);
  EXPECT_EQ(with({Resource::kContentBytes, Resource::kStorageBytes}), 100);
  EXPECT_EQ(with({Resource::kOutstandingMessages}), 0);
  EXPECT_EQ(QuotaTree().MemoryWithQuota("stranger", {100}), 0);
}

TEST(QuotaTreeTest, ItIsTakenBackWithinNominalQuotasAlone) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "c", {.nominal = 10}, {.nominal = 5}),
                  Tenant("b", "c", {.nominal = 10}), Tenant("open", "c", {}),
                  Tenant("other", "d", {.nominal = 1}),
                  Tenant("alone", "", {.nominal = 10})});
  EXPECT_FALSE(tree.MayTakeBack("a", "b", Ask(1)));
  tree.Take("b", Ask(12));
  EXPECT_TRUE(tree.MayTakeBack("a", "b", Ask(10)));
  EXPECT_FALSE(tree.MayTakeBack("a", "b", Ask(11)));
  EXPECT_FALSE(tree.MayTakeBack("a", "b", Ask(10, 6)));
  // b borrows another resource.
  EXPECT_FALSE(tree.MayTakeBack("a", "b", Ask(0, 1)));
  EXPECT_FALSE(tree.MayTakeBack("a", "a", Ask(1)));
  EXPECT_FALSE(tree.MayTakeBack("other", "b", Ask(1)));
  EXPECT_FALSE(tree.MayTakeBack("alone", "b", Ask(1)));
  EXPECT_FALSE(tree.MayTakeBack("stranger", "b", Ask(1)));
  // The tenant's own quota is unlimited, so nothing of it is lent.
  EXPECT_FALSE(tree.MayTakeBack("open", "b", Ask(1)));
}

TEST(QuotaTreeTest, ACohortsWeightCountsBesideItsSiblings) {
  QuotaTree tree;
  const std::vector<TenantQuota> tenants = {
      Tenant("a", "lab/vision", {.nominal = 0}),
      Tenant("b", "lab/speech", {.nominal = 0}),
      Tenant("lender", "lab", {.nominal = 20})};
  tree.Configure(tenants);
  tree.Take("a", Ask(8));
  tree.Take("b", Ask(12));
  EXPECT_GT(tree.Precedence("b", Ask(1)), tree.Precedence("a", Ask(1)));
  EXPECT_EQ(tree.Reclaim("lender", Ask(20)), "b");
  tree.Configure(tenants, {{.cohort = "lab/speech", .weight = 2}});
  EXPECT_LT(tree.Precedence("b", Ask(1)), tree.Precedence("a", Ask(1)));
  EXPECT_EQ(tree.Reclaim("lender", Ask(20)), "a");
}

TEST(QuotaTreeTest, SmallerBorrowerHasPrecedence) {
  QuotaTree tree;
  tree.Configure({Tenant("a", "c", {.nominal = 10}),
                  Tenant("b", "c", {.nominal = 10}),
                  Tenant("lender", "c", {.nominal = 20})});
  tree.Take("a", Ask(15));
  tree.Take("b", Ask(9));
  EXPECT_LT(tree.Precedence("b", Ask(2)), tree.Precedence("a", Ask(2)));
  EXPECT_GT(tree.Precedence("b", Ask(8)), tree.Precedence("a", Ask(1)));
}

// Tests the case from Volcano's HDRF. In one cohort, "memory" wants only memory
// and takes all that can be borrowed; its sibling "messages" wants only
// messages. A tree that compares dominant shares would make "messages" wait
// forever behind "both", because of its sibling's memory.
TEST(QuotaTreeTest, SiblingsUseOfAnotherResourceDelaysNoTenant) {
  QuotaTree tree;
  const Quota none{.nominal = 0};
  tree.Configure({Tenant("both", "lab", none, none),
                  Tenant("memory", "lab/team", none, none),
                  Tenant("messages", "lab/team", none, none),
                  Tenant("pool", "lab", {.nominal = 100}, {.nominal = 100})});
  tree.Take("memory", Ask(60, 0));
  int for_messages = 0;
  int for_both = 0;
  while (!tree.Check("messages", Ask(0, 1)).has_value()) {
    const bool first = tree.Precedence("messages", Ask(0, 1)) <
                       tree.Precedence("both", Ask(1, 1));
    const bool room = !tree.Check("both", Ask(1, 1)).has_value();
    if (first || !room) {
      tree.Take("messages", Ask(0, 1));
      ++for_messages;
    } else {
      tree.Take("both", Ask(1, 1));
      ++for_both;
    }
  }
  EXPECT_GE(for_messages, 50);
  EXPECT_GE(for_both, 30);
}

TEST(QuotaTreeTest, UseOutlivesAConfiguration) {
  QuotaTree tree;
  tree.Configure(
      {Tenant("a", "c", {.nominal = 10}), Tenant("b", "c", {.nominal = 10})});
  tree.Take("a", Ask(15));
  tree.Configure(
      {Tenant("a", "", {.nominal = 12}), Tenant("b", "c", {.nominal = 10})});
  EXPECT_EQ(tree.Used("a", kMemory), 15);
  const std::optional<QuotaTree::Breach> breach = tree.Check("a", Ask(1));
  EXPECT_EQ(breach->limit, 12);
  EXPECT_EQ(breach->used, 15);
  EXPECT_FALSE(tree.Check("b", Ask(10)).has_value());
}

}  // namespace
}  // namespace djinn::scheduler
