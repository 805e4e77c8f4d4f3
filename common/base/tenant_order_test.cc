#include "common/base/tenant_order.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

struct Item {
  std::string name;
  TenantOrder<Item>::Holders holders;
};

using Order = TenantOrder<Item>;

// Returns "tenant item", or "" when nothing is released.
std::string Release(Order* order, const Item* keep = nullptr) {
  const std::optional<Order::LetGo> let_go = order->Release(keep);
  return let_go.has_value()
             ? absl::StrCat(let_go->tenant, " ", let_go->item->name)
             : "";
}

TEST(TenantOrderTest, ATenantLetsGoOfWhatItUsedLeastRecently) {
  Order order({.items = 3});
  Item x{"x", {}}, y{"y", {}};
  order.Take("red", &x, 0);
  order.Take("red", &y, 0);
  EXPECT_TRUE(order.Use("red", &x));
  EXPECT_FALSE(order.Use("blue", &x));
  EXPECT_EQ(Release(&order), "red y");
  EXPECT_TRUE(y.holders.empty());
  EXPECT_EQ(Release(&order, &x), "");
  EXPECT_EQ(Release(&order), "red x");
  EXPECT_EQ(Release(&order), "");
}

TEST(TenantOrderTest, TenantWithTheMostLosesItsOldestItem) {
  Order order({.items = 4});
  Item mine{"mine", {}};
  order.Take("blue", &mine, 0);
  std::vector<std::unique_ptr<Item>> many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(std::make_unique<Item>(Item{absl::StrCat(i), {}}));
    order.Take("red", many.back().get(), 0);
  }
  EXPECT_EQ(Release(&order), "red 0");
  EXPECT_EQ(Release(&order), "red 1");
  EXPECT_EQ(Release(&order), "red 2");
  EXPECT_TRUE(mine.holders.contains("blue"));
}

TEST(TenantOrderTest, SharedItemStaysTheOtherTenants) {
  Order order({.items = 2});
  Item shared{"shared", {}}, other{"other", {}};
  order.Take("red", &shared, 0);
  order.Take("red", &other, 0);
  order.Take("blue", &shared, 0);
  EXPECT_EQ(Release(&order), "red shared");
  EXPECT_TRUE(shared.holders.contains("blue"));
  EXPECT_FALSE(shared.holders.contains("red"));
  EXPECT_FALSE(order.Use("red", &shared));
}

TEST(TenantOrderTest, TheLargerShareCounts) {
  Order order({.items = 10, .bytes = 1000});
  Item large{"large", {}}, small{"small", {}}, tiny{"tiny", {}};
  order.Take("blue", &small, 1);
  order.Take("blue", &tiny, 1);
  order.Take("red", &large, 201);  // more than two of ten
  EXPECT_EQ(Release(&order), "red large");
  order.Take("red", &large, 199);
  EXPECT_EQ(Release(&order), "blue small");
}

TEST(TenantOrderTest, AnItemThatGrowsDoesSoForItsHolders) {
  Order order({.bytes = 1000});
  Item shared{"shared", {}}, own{"own", {}};
  order.Take("red", &shared, 10);
  order.Take("blue", &shared, 10);
  order.Take("green", &own, 50);
  order.Resize(&shared, [](absl::string_view) { return 60; });
  EXPECT_EQ(Release(&order), "red shared");
  EXPECT_EQ(Release(&order), "blue shared");
  EXPECT_EQ(Release(&order), "green own");
  // A second Take() with another size changes it for that tenant alone.
  order.Take("red", &shared, 10);
  order.Take("blue", &shared, 10);
  order.Take("blue", &shared, 20);
  EXPECT_EQ(Release(&order), "blue shared");
}

TEST(TenantOrderTest, TenantWithinItsPartLosesNothing) {
  // The actions of three other tenants, together or one after another, do not
  // matter.
  constexpr uint64_t kLimit = 40;
  Order order({.items = kLimit});
  std::vector<std::unique_ptr<Item>> items;
  size_t here = 0;
  const auto take = [&](const std::string& tenant) {
    items.push_back(std::make_unique<Item>(Item{tenant, {}}));
    order.Take(tenant, items.back().get(), 0);
    ++here;
    while (here > kLimit) {
      const std::optional<Order::LetGo> let_go =
          order.Release(items.back().get());
      ASSERT_TRUE(let_go.has_value());
      EXPECT_NE(let_go->tenant, "blue");
      if (let_go->item->holders.empty()) --here;
    }
  };
  for (uint64_t i = 0; i < kLimit / 4; ++i) take("blue");
  for (uint32_t i = 0; i < 1000; ++i) {
    take(i % 7 == 0 ? "red" : i % 3 == 0 ? "green" : "amber");
  }
}

TEST(TenantTurnsTest, EachHasItsTurnAndWhoHadTheLastIsLast) {
  std::map<std::string, int> waiting = {{"a", 1}, {"b", 0}, {"c", 2}};
  const auto next = [&](const std::string& last) {
    const auto found =
        NextInTurn(waiting, last, [](int count) { return count > 0; });
    return found == waiting.end() ? "" : found->first;
  };
  EXPECT_EQ(next(""), "a");
  EXPECT_EQ(next("a"), "c");
  EXPECT_EQ(next("c"), "a");
  // The tenant that had the last turn may be gone.
  EXPECT_EQ(next("bb"), "c");
  waiting["a"] = 0;
  EXPECT_EQ(next("c"), "c");
  waiting["c"] = 0;
  EXPECT_EQ(next("c"), "");
  waiting.clear();
  EXPECT_EQ(next("c"), "");
}

}  // namespace

}  // namespace djinn
