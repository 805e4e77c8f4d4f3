// Tests reports of what a session used: their order among calls, and devices
// that migrate, break or cannot answer.
#include <memory>
#include <string>
#include <utility>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3;

class CostTest : public DeviceTest {
 protected:
  // Executes one run.
  void Request() {
    EXPECT_TRUE(Record(*device_, kLane, MakeCall(1, {{value_, kWrites}})).ok());
    EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
  }
  std::unique_ptr<PendingCost> Ask() {
    auto asked = session_->AskCost(kLane);
    EXPECT_TRUE(asked.ok()) << asked.status();
    return asked.ok() ? *std::move(asked) : nullptr;
  }
  Cost Used() { return Ask()->Wait().value(); }

  const StoragePtr value_ = device_->NewStorage(4);
};

TEST_F(CostTest, CountsWhatWasCalledBeforeAndNothingLater) {
  Request();
  EXPECT_TRUE(Record(*device_, kLane, MakeCall(2, {{value_, kWrites}})).ok());
  cluster_.worker().Pause();
  const std::unique_ptr<PendingCost> asked = Ask();
  EXPECT_TRUE(Record(*device_, kLane, MakeCall(3, {{value_, kWrites}})).ok());
  cluster_.worker().Resume();
  EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
  const absl::StatusOr<Cost> cost = asked->Wait();
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_EQ(cost->runs, 2u);
  EXPECT_EQ(cost->device_time, absl::Milliseconds(2));
  EXPECT_EQ(cost->bytes_up, 200u);
  EXPECT_EQ(cost->bytes_down, 20u);
  // The answer can be read repeatedly.
  EXPECT_EQ(asked->Wait()->runs, 2u);
  EXPECT_EQ(Used().runs, 3u);
}

TEST_F(CostTest, AsksNoWorkerWhereNothingWasCalled) {
  EXPECT_EQ(Used().runs, 0u);
  EXPECT_TRUE(cluster_.coordinator().lease_requests().empty());
}

TEST_F(CostTest, AddsUpTheDevices) {
  Request();
  const auto other = *session_->Device(1);
  const StoragePtr there = other->NewStorage(4);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Record(*other, kLane, MakeCall(1, {{there, kWrites}})).ok());
    EXPECT_TRUE(ReadByte(*other, kLane, there).ok());
  }
  EXPECT_EQ(Used().runs, 3u);
}

TEST_F(CostTest, CostContinuesAfterAMigration) {
  Request();
  EXPECT_EQ(Used().runs, 1u);
  EXPECT_FALSE(cluster_.coordinator().Migrate("lease-0", 1, 10).has_failure());
  Request();
  const Cost cost = Used();
  EXPECT_EQ(cost.runs, 2u);
  EXPECT_EQ(cost.device_time, absl::Milliseconds(2));
  EXPECT_EQ(cluster_.worker(1).seen().runs.size(), 1u);
}

TEST_F(CostTest, AnAnswerThatWasCutOffComesWithTheNextStream) {
  Request();
  cluster_.worker().CutAt(FakeScript::Cut::kBeforeOut,
                          cluster_.worker().seen().outgoing + 1);
  EXPECT_EQ(Used().runs, 1u);
  EXPECT_EQ(cluster_.worker().seen().resumes, 1);
}

TEST_F(CostTest, ALostWorkerIsTheAnswer) {
  Request();
  cluster_.worker().Pause();
  const std::unique_ptr<PendingCost> asked = Ask();
  cluster_.coordinator().EndLease("lease-0", "WORKER_LOST");
  EXPECT_EQ(ErrorReason(asked->Wait().status()), "WORKER_LOST");
  EXPECT_EQ(ErrorReason(session_->AskCost(kLane).status()), "WORKER_LOST");
}

TEST_F(CostTest, CostOfACallBeingCapturedIsRefused) {
  Request();
  EXPECT_TRUE(device_->graphs().Start(kLane).ok());
  EXPECT_TRUE(Record(*device_, kLane, MakeCall(1, {{value_, kWrites}})).ok());
  (void)Used();
  EXPECT_EQ(ErrorReason(device_->graphs().Finish(kLane, {}, {}, 0).status()),
            "METERS");
}

}  // namespace
}  // namespace djinn
