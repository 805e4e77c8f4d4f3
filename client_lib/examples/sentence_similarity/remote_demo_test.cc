#include "client_lib/examples/sentence_similarity/remote_demo.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

TEST(ReorderedTest, RoundZeroKeepsTheOrder) {
  EXPECT_EQ(Reordered("The cat sits outside", 0), "The cat sits outside");
}

TEST(ReorderedTest, EveryRoundHasAnotherOrder) {
  std::set<std::string> seen;
  for (int round = 0; round < 24; ++round) {
    const std::string sentence = Reordered("one two three four", round);
    EXPECT_EQ(sentence.size(), 18u);
    EXPECT_TRUE(seen.insert(sentence).second) << sentence;
  }
}

TEST(ReorderedTest, StartsOverWhenThereAreNoMoreOrders) {
  EXPECT_EQ(Reordered("a b", 1), "b a");
  EXPECT_EQ(Reordered("a b", 2), "a b");
  EXPECT_EQ(Reordered("alone", 5), "alone");
  EXPECT_EQ(Reordered("", 3), "");
}

}  // namespace
}  // namespace djinn::examples
