#include "gpu_worker/plan/shared_products.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class Weight : public Buffer {
  uint64_t size_bytes() const override { return 4; }
};

class SharedProductsTest : public testing::Test {
 protected:
  // Returns whether the runs suit each other. A letter is a product with that
  // weight.
  bool Suit(const std::string& own, const std::string& others) {
    return SharedProducts(Products(own)).Suit(Products(others));
  }
  std::vector<OngoingRun::Product> Products(const std::string& weights) {
    std::vector<OngoingRun::Product> products;
    for (const char weight : weights) {
      products.push_back({.weight = &weights_[weight - 'a']});
    }
    return products;
  }

  std::vector<Weight> weights_{26};
};

TEST_F(SharedProductsTest, RunsOfOneModelSuit) {
  EXPECT_TRUE(Suit("abcd", "abcd"));
  EXPECT_TRUE(Suit("abcd", "dcba"));
  EXPECT_TRUE(Suit("abab", "ab"));
}

TEST_F(SharedProductsTest, HalfOfEitherIsEnough) {
  EXPECT_TRUE(Suit("abcd", "ab"));
  EXPECT_TRUE(Suit("ab", "abcd"));
  EXPECT_TRUE(Suit("abcd", "abxy"));
  EXPECT_FALSE(Suit("abcd", "abxyz"));
  EXPECT_FALSE(Suit("abcde", "abxy"));
}

TEST_F(SharedProductsTest, OneInCommonIsNotEnough) {
  // A decoder, and a prompt whose products share only the output matrix.
  EXPECT_FALSE(Suit("abcdh", "h"));
  EXPECT_FALSE(Suit("h", "abcdh"));
  EXPECT_FALSE(Suit("abcdh", "hhhhh"));
}

TEST_F(SharedProductsTest, AnotherWeightOrAnotherViewOfItIsAnotherProduct) {
  EXPECT_FALSE(Suit("a", "b"));
  std::vector<OngoingRun::Product> other = Products("a");
  other[0].kind = 1;
  EXPECT_FALSE(SharedProducts(Products("a")).Suit(other));
}

TEST_F(SharedProductsTest, EmptyProductsDoNotSuit) {
  EXPECT_FALSE(Suit("a", ""));
  EXPECT_FALSE(Suit("", "a"));
  EXPECT_FALSE(Suit("", ""));
}

}  // namespace
}  // namespace djinn::worker
