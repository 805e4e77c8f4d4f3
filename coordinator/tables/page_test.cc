#include "coordinator/tables/page.h"

#include <map>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Numbers = std::map<std::string, int>;

Page<int> PageOf(const Numbers& numbers, const PageRange& range) {
  const auto slice = Slice(numbers, range);
  Page<int> page;
  for (const auto& entry : slice.items) page.items.push_back(entry->second);
  page.last_key = slice.last_key;
  return page;
}

TEST(PageTest, PagesCoverTheListOnce) {
  Numbers numbers = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}};
  Page<int> page = PageOf(numbers, {"", 2});
  EXPECT_THAT(page.items, ElementsAre(1, 2));
  // The last entry may be removed, and others added.
  numbers.erase(page.last_key);
  numbers["aa"] = 5;
  page = PageOf(numbers, {page.last_key, 2});
  EXPECT_THAT(page.items, ElementsAre(3, 4));
  EXPECT_EQ(page.last_key, "");
}

TEST(PageTest, NothingFollowsTheEnd) {
  EXPECT_EQ(PageOf({}, {}).last_key, "");
  const Numbers numbers = {{"a", 1}};
  EXPECT_EQ(PageOf(numbers, {}).last_key, "");
  EXPECT_THAT(PageOf(numbers, {"z", 3}).items, IsEmpty());
  EXPECT_EQ(PageOf(numbers, {"z", 3}).last_key, "");
}

TEST(PageTest, TokensLeadOn) {
  const std::string token = MakePageToken("leases", "some key");
  const auto range = ParsePageRange("leases", 7, token);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->after, "some key");
  EXPECT_EQ(range->max_items, 7u);
  EXPECT_EQ(MakePageToken("leases", ""), "");
}

TEST(PageTest, SizesAreBounded) {
  EXPECT_EQ(ParsePageRange("leases", 0, "")->max_items, kDefaultPageSize);
  EXPECT_EQ(ParsePageRange("leases", 5000, "")->max_items, kMaxPageSize);
  EXPECT_EQ(ErrorReason(ParsePageRange("leases", -1, "").status()),
            "PAGE_SIZE_NEGATIVE");
}

TEST(PageTest, TokensOfOthersAreRefused) {
  for (const std::string& token :
       {MakePageToken("graphs", "key"), std::string("%"), std::string("abcd"),
        MakePageToken("leases", "key") + "!"}) {
    EXPECT_EQ(ErrorReason(ParsePageRange("leases", 0, token).status()),
              "PAGE_TOKEN_MALFORMED")
        << token;
  }
}

}  // namespace
}  // namespace djinn::coordinator
