#include "common/net/coordinator_channels.h"

#include "common/base/error.h"
#include "common/net/server_address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;

absl::Status NotLeader(const std::string& leader) {
  return MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER", "follows",
                   {{"leader", leader}});
}

TEST(CoordinatorChannelsTest, GoesRoundAndPausesOncePerRound) {
  const auto channels =
      CoordinatorChannels::Make("localhost:1, localhost:2,unix:/x").value();
  EXPECT_EQ(channels->size(), 3);
  const absl::Status gone = absl::UnavailableError("gone");
  EXPECT_EQ(channels->current().address, "localhost:1");
  EXPECT_TRUE(channels->NoteFailure(channels->current(), gone));
  EXPECT_EQ(channels->current().address, "localhost:2");
  EXPECT_TRUE(channels->NoteFailure(channels->current(), gone));
  EXPECT_EQ(channels->current().address, "unix:/x");
  EXPECT_FALSE(channels->NoteFailure(channels->current(), gone));
  EXPECT_EQ(channels->current().address, "localhost:1");
  EXPECT_TRUE(channels->NoteFailure(channels->current(), gone));
}

TEST(CoordinatorChannelsTest, OneAddressPausesAfterEveryFailure) {
  const auto channels = CoordinatorChannels::Make("localhost:1").value();
  EXPECT_FALSE(channels->NoteFailure(channels->current(), NotLeader("")));
  EXPECT_EQ(channels->current().address, "localhost:1");
}

TEST(CoordinatorChannelsTest, FollowsAHintOnlyWithinTheList) {
  const auto channels =
      CoordinatorChannels::Make("localhost:1,localhost:2,localhost:3").value();
  channels->NoteFailure(channels->current(), NotLeader("localhost:3"));
  EXPECT_EQ(channels->current().address, "localhost:3");
  channels->NoteFailure(channels->current(), NotLeader("evil:1"));
  EXPECT_EQ(channels->current().address, "localhost:1");
  // Two followers that each name a leader that is gone still lead to a pause.
  EXPECT_FALSE(
      channels->NoteFailure(channels->current(), NotLeader("localhost:3")));
}

TEST(CoordinatorChannelsTest, AFailureOfAnEarlierTargetMovesNothing) {
  const auto channels =
      CoordinatorChannels::Make("localhost:1,localhost:2").value();
  const CoordinatorChannels::Target first = channels->current();
  channels->NoteFailure(first, absl::UnavailableError("gone"));
  channels->NoteFailure(first, absl::UnavailableError("gone"));
  EXPECT_EQ(channels->current().address, "localhost:2");
}

TEST(CoordinatorChannelsTest, RefusesAMalformedListWhole) {
  for (const char* const list : {"", "localhost:1,", "localhost:1,,localhost:2",
                                 "localhost:1 localhost:2"}) {
    EXPECT_EQ(ErrorReason(CoordinatorChannels::Make(list).status()),
              "MALFORMED_ADDRESS")
        << list;
  }
  EXPECT_EQ(
      ErrorReason(CoordinatorChannels::Make("localhost:1,10.0.0.1:1").status()),
      "INSECURE_ADDRESS");
  EXPECT_THAT(SplitAddresses(" a:1 , b:2"), ElementsAre("a:1", "b:2"));
}

}  // namespace
}  // namespace djinn
