#include "common/base/tenant_turns.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace djinn {
namespace {

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
