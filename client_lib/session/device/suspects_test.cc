// Tests which runs are given up because workers ended while they executed them.
#include <atomic>
#include <string>
#include <thread>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::HasSubstr;

class SuspectsTest : public DeviceTest {
 protected:
  SuspectsTest() : DeviceTest(Recovering()) {}

  // Loses each worker that executes test::op7, until the read of its result
  // fails. The first one, which the test has paused, is lost with everything
  // unfinished. Returns how many were lost.
  int LoseUntilGivenUp(const StoragePtr& result) {
    std::atomic<bool> given_up = false;
    std::thread reader([&] {
      EXPECT_FALSE(ReadAll(result).ok());
      given_up = true;
    });
    cluster_.worker().WaitForRead();
    cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
    int lost = 0;
    for (Patience patience; !given_up; patience.Yield()) {
      if (lost > 0 && !cluster_.worker().HoldsRun()) continue;
      Lose();
      if (++lost == 1) cluster_.worker().Resume();
    }
    reader.join();
    cluster_.worker().Set(&FakeScript::held_operator, "");
    return lost;
  }

  // Ends the device's lease for this reason each time that the worker executes
  // test::op7, so many times.
  void LoseExecutor(int times, const std::string& reason) {
    for (int lost = 0; lost < times; ++lost) {
      for (Patience patience; !cluster_.worker().HoldsRun();) patience.Yield();
      cluster_.coordinator().NoteRestart();
      cluster_.coordinator().EndLease("lease-0", reason);
      cluster_.worker().Restart(/*other_incarnation=*/true);
    }
  }
};

TEST_F(SuspectsTest, ARunThatKillsTwoWorkersIsGivenUpAndTheSessionGoesOn) {
  // The first worker is lost before it confirms the upload that precedes the
  // run.
  cluster_.worker().Pause();
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = Called(7, {x});
  EXPECT_EQ(LoseUntilGivenUp(y), 2);
  const absl::Status killed = ReadAll(y).status();
  EXPECT_EQ(ErrorReason(killed), "RUN_KILLS_WORKERS") << killed;
  EXPECT_THAT(std::string(killed.message()), HasSubstr("test::op7"));
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_EQ(ErrorReason(ReadAll(Called(3, {y})).status()), "RUN_KILLS_WORKERS");
  EXPECT_TRUE(ReadAll(Called(3, {x})).ok());
  // It stays given up, whatever is lost later.
  Lose();
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_EQ(ErrorReason(ReadAll(y).status()), "RUN_KILLS_WORKERS");
}

TEST_F(SuspectsTest, OnlyTheRunThatKillsWorkersIsGivenUp) {
  cluster_.worker().Pause();
  const StoragePtr x = Uploaded("12345678");
  // Lanes that take turns make runs of their own.
  const StoragePtr before = Called(1, {x}, /*lane=*/5);
  const StoragePtr y = Called(7, {x}, /*lane=*/6);
  const StoragePtr after = Called(2, {x}, /*lane=*/7);
  EXPECT_EQ(LoseUntilGivenUp(y), 2);
  EXPECT_EQ(ErrorReason(ReadAll(y).status()), "RUN_KILLS_WORKERS");
  EXPECT_TRUE(ReadAll(before).ok());
  EXPECT_TRUE(ReadAll(after).ok());
}

TEST_F(SuspectsTest, AWorkerThatIsAliveIsNoReasonToBlameARun) {
  cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
  const StoragePtr y = Called(7, {Uploaded("12345678")});
  std::thread reader([&] {
    const absl::Status status = ReadAll(y).status();
    EXPECT_TRUE(status.ok()) << status;
  });
  for (const char* const reason :
       {"DRAINING", "SESSION_LOST", "LEASE_UNKNOWN", "LEASE_EXPIRED"}) {
    cluster_.worker().WaitForRead();
    cluster_.coordinator().NoteRestart();
    cluster_.worker().Restart(
        /*other_incarnation=*/true,
        MakeError(absl::StatusCode::kUnavailable, reason, "it is left"));
  }
  cluster_.worker().Set(&FakeScript::held_operator, "");
  cluster_.worker().Resume();
  reader.join();
}

TEST_F(SuspectsTest, ARunThatAnExecutorWasNotExecutingIsNotBlamed) {
  cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
  const StoragePtr y = Called(7, {Uploaded("12345678")});
  std::thread reader([&] {
    const absl::Status status = ReadAll(y).status();
    EXPECT_TRUE(status.ok()) << status;
  });
  cluster_.worker().WaitForRead();
  // Another session's run ends the executor, again and again.
  LoseExecutor(3, "EXECUTOR_LOST");
  cluster_.worker().Set(&FakeScript::held_operator, "");
  cluster_.worker().Resume();
  reader.join();
  EXPECT_EQ(session_->statistics().root_errors, 0u);
}

TEST_F(SuspectsTest, ARunThatTwoExecutorsWereExecutingIsGivenUp) {
  cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
  const StoragePtr y = Called(7, {Uploaded("12345678")});
  std::thread reader([&] {
    EXPECT_EQ(ErrorReason(ReadAll(y).status()), "RUN_KILLS_WORKERS");
  });
  cluster_.worker().WaitForRead();
  LoseExecutor(2, "EXECUTOR_LOST_IN_TURN");
  reader.join();
}

TEST_F(SuspectsTest, FourLossesOfAWorkerWithExecutorsGiveARunUp) {
  cluster_.worker().Set(&FakeScript::executor_per_tenant, true);
  cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
  const StoragePtr y = Called(7, {Uploaded("12345678")});
  std::thread reader([&] {
    const absl::Status status = ReadAll(y).status();
    EXPECT_TRUE(status.ok()) << status;
  });
  cluster_.worker().WaitForRead();
  LoseExecutor(3, "WORKER_RESTARTED");
  cluster_.worker().Set(&FakeScript::held_operator, "");
  cluster_.worker().Resume();
  reader.join();
  EXPECT_EQ(session_->statistics().root_errors, 0u);

  cluster_.worker().Set(&FakeScript::held_operator, "test::op8");
  const StoragePtr z = Called(8, {y});
  std::thread second([&] {
    EXPECT_EQ(ErrorReason(ReadAll(z).status()), "RUN_KILLS_WORKERS");
  });
  LoseExecutor(4, "WORKER_RESTARTED");
  second.join();
}

TEST_F(SuspectsTest, SynchronizeReturnsTheErrorOfARunThatWasGivenUp) {
  cluster_.worker().Set(&FakeScript::held_operator, "test::op7");
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = Called(7, {x});
  std::thread waiter([&] {
    EXPECT_EQ(ErrorReason(device_->Synchronize()), "RUN_KILLS_WORKERS");
  });
  LoseExecutor(2, "EXECUTOR_LOST_IN_TURN");
  waiter.join();
  EXPECT_EQ(session_->statistics().root_errors, 1u);
  // Reading the value finds the same error.
  EXPECT_EQ(ErrorReason(ReadAll(y).status()), "RUN_KILLS_WORKERS");
  EXPECT_EQ(ErrorReason(ReadAll(Called(3, {y})).status()), "RUN_KILLS_WORKERS");
  EXPECT_EQ(session_->statistics().root_errors, 1u);
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_TRUE(session_->Close(absl::Seconds(5)).ok());
}

TEST_F(SuspectsTest, ARunIsNotBlamedForLossesBeforeAWorkerSurvivedIt) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Set(&FakeScript::hold_runs, true);
  const StoragePtr y = Called(7, {x});
  for (int round = 0; round < 3; ++round) {
    std::thread reader(
        [&] { EXPECT_EQ(ReadAll(y).status(), absl::OkStatus()); });
    cluster_.worker().WaitForRead();
    Lose();
    cluster_.worker().Set(&FakeScript::hold_runs, false);
    cluster_.worker().Resume();
    reader.join();
    // The successor is lost, too, and the next one executes the run again.
    cluster_.worker().Set(&FakeScript::hold_runs, true);
    Lose();
  }
}

}  // namespace
}  // namespace djinn
