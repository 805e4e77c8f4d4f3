#include "coordinator/tables/token_bucket.h"

#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

int TakeAll(TokenBucket* bucket, absl::Duration now) {
  int taken = 0;
  while (taken < 1000 && bucket->Take(now)) ++taken;
  return taken;
}

TEST(TokenBucketTest, SomeAtOnceAndSoManyASecond) {
  TokenBucket bucket(8, 4);
  EXPECT_EQ(TakeAll(&bucket, absl::Seconds(100)), 8);
  EXPECT_EQ(TakeAll(&bucket, absl::Seconds(100.5)), 2);
  EXPECT_EQ(TakeAll(&bucket, absl::Seconds(100.6)), 0);
  EXPECT_EQ(TakeAll(&bucket, absl::Seconds(100.75)), 1);
  // Tokens do not accumulate beyond the initial number.
  EXPECT_EQ(TakeAll(&bucket, absl::Hours(1)), 8);
}

}  // namespace
}  // namespace djinn::coordinator
