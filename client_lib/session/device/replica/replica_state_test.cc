#include "client_lib/session/device/replica/replica_state.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::replica {
namespace {

TEST(SenderTurnTest, SecondThreadGetsNoTurnUntilTheFirstGivesIt) {
  SenderTurn turn;
  EXPECT_TRUE(turn.TryTake());
  EXPECT_FALSE(turn.TryTake());
  turn.Give();
  EXPECT_TRUE(turn.TryTake());
}

TEST(SenderTurnTest, DevicesOwnThreadWaitsForItsTurn) {
  SenderTurn turn;
  ASSERT_TRUE(turn.TryTake());
  std::atomic<bool> given{false};
  std::thread own([&] {
    turn.Take();
    EXPECT_TRUE(given);
    turn.Give();
  });
  given = true;
  turn.Give();
  own.join();
  EXPECT_TRUE(turn.TryTake());
}

TEST(ForgottenModelsTest, EachModelIsTakenOnce) {
  ForgottenModels models;
  EXPECT_FALSE(models.any());
  models.Add(3);
  models.Add(5);
  EXPECT_TRUE(models.any());
  EXPECT_THAT(models.TakeAll(), testing::ElementsAre(3, 5));
  EXPECT_FALSE(models.any());
  EXPECT_THAT(models.TakeAll(), testing::IsEmpty());
}

}  // namespace
}  // namespace djinn::replica
