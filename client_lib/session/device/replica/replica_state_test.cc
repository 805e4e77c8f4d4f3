#include "client_lib/session/device/replica/replica_state.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/model/wait.h"
#include "common/base/clock.h"
#include "djinn/v1/recovery.pb.h"
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

TEST(AttemptTimeTest, TheFirstAttemptLeavesTimeForOtherWorkers) {
  FakeClock clock;
  const Deadline end(absl::Seconds(30), &clock);
  EXPECT_EQ(AttemptTime(end, /*patient=*/true), absl::Seconds(10));
  EXPECT_EQ(AttemptTime(end, /*patient=*/false), absl::Seconds(3));
  clock.Advance(absl::Seconds(27));
  EXPECT_EQ(AttemptTime(end, /*patient=*/true), absl::Seconds(1));
  EXPECT_EQ(AttemptTime(end, /*patient=*/false), absl::Seconds(1));
}

TEST(ShrinkAnswerTest, AnswerOfManyDevicesFits) {
  v1::LineageAnswer answer;
  for (int i = 0; i < 1000; ++i) {
    v1::DeviceLineage* const device = answer.add_devices();
    device->set_obstacle(std::string(100, 'x'));
    device->add_values()->set_why("y");
    device->add_graph()->set_text("z");
  }
  ShrinkAnswer(&answer);
  EXPECT_LE(answer.ByteSizeLong(), size_t{48} << 10);
  EXPECT_GT(answer.devices_size(), 0);
}

}  // namespace
}  // namespace djinn::replica
