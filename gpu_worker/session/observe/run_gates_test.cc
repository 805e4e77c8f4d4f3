#include "gpu_worker/session/observe/run_gates.h"

#include <memory>
#include <numeric>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

absl::Duration At(int64_t nanoseconds) {
  return absl::Nanoseconds(nanoseconds);
}

class RunGatesTest : public testing::Test {
 protected:
  int64_t Sum(const RunGates::Times& times) {
    return std::accumulate(times.begin(), times.end(), int64_t{0});
  }

  ServedTime served_;
  ServedTime::Tenant blue_;
  std::shared_ptr<ServedTime::Tenant> red_ =
      std::make_shared<ServedTime::Tenant>();
  RunGates gates_{&served_, red_};
};

TEST_F(RunGatesTest, NothingIsHeldBeforeThereIsAnything) {
  EXPECT_EQ(Sum(gates_.At(At(1000))), 0);
  EXPECT_EQ(gates_.Now(), v1::RUN_GATE_UNSPECIFIED);
}

TEST_F(RunGatesTest, EachGateCountsWhileItHolds) {
  gates_.Enter(v1::RUN_GATE_BYTES, At(10));
  gates_.Enter(v1::RUN_GATE_SESSION, At(30));
  const RunGates::Times times = gates_.At(At(35));
  EXPECT_EQ(times[v1::RUN_GATE_BYTES], 20);
  EXPECT_EQ(times[v1::RUN_GATE_SESSION], 5);
  EXPECT_EQ(Sum(times), 25);
  EXPECT_EQ(gates_.since(), At(30));
  gates_.Enter(v1::RUN_GATE_UNSPECIFIED, At(40));
  EXPECT_EQ(Sum(gates_.At(At(100))), 30);
}

TEST_F(RunGatesTest, TheSameGateGoesOn) {
  gates_.Enter(v1::RUN_GATE_CREDIT, At(10));
  gates_.Enter(v1::RUN_GATE_CREDIT, At(20));
  EXPECT_EQ(gates_.since(), At(10));
  EXPECT_EQ(gates_.At(At(25))[v1::RUN_GATE_CREDIT], 15);
}

TEST_F(RunGatesTest, ATurnIsToldApartByWhomTheDeviceServes) {
  served_.Begin(&blue_, At(0));
  gates_.Enter(v1::RUN_GATE_WORKER, At(10));
  EXPECT_EQ(gates_.Now(), v1::RUN_GATE_OTHER_TENANTS);
  served_.End(At(30));
  EXPECT_EQ(gates_.Now(), v1::RUN_GATE_WORKER);
  served_.Begin(red_.get(), At(31));
  EXPECT_EQ(gates_.Now(), v1::RUN_GATE_TENANT);
  served_.End(At(40));
  served_.AwaitBatch(At(40));
  EXPECT_EQ(gates_.Now(), v1::RUN_GATE_BATCH);
  served_.EndAwaiting(At(45));
  const RunGates::Times times = gates_.At(At(47));
  EXPECT_EQ(times[v1::RUN_GATE_OTHER_TENANTS], 20);
  EXPECT_EQ(times[v1::RUN_GATE_TENANT], 9);
  EXPECT_EQ(times[v1::RUN_GATE_BATCH], 5);
  EXPECT_EQ(times[v1::RUN_GATE_WORKER], 3);
}

TEST_F(RunGatesTest, RunReceivedDuringATurnWaitsForItsRest) {
  served_.Begin(&blue_, At(0));
  gates_.Enter(v1::RUN_GATE_WORKER, At(10));
  const RunGates::Times before = gates_.At(At(25));
  served_.End(At(30));
  gates_.Enter(v1::RUN_GATE_SESSION, At(30));
  const RunGates::Times after = gates_.At(At(30));
  EXPECT_EQ(
      after[v1::RUN_GATE_OTHER_TENANTS] - before[v1::RUN_GATE_OTHER_TENANTS],
      5);
  EXPECT_EQ(Sum(after) - Sum(before), 5);
}

TEST_F(RunGatesTest, SettledValueWaitsForItsTurn) {
  served_.Begin(&blue_, At(0));
  gates_.Enter(v1::RUN_GATE_VALUE, At(10));
  gates_.mark()->Settled(At(30));
  served_.End(At(40));
  const RunGates::Times times = gates_.At(At(42));
  EXPECT_EQ(times[v1::RUN_GATE_VALUE], 20);
  EXPECT_EQ(times[v1::RUN_GATE_OTHER_TENANTS], 10);
  EXPECT_EQ(times[v1::RUN_GATE_WORKER], 2);
}

TEST_F(RunGatesTest, ALateMarkIsWithoutEffect) {
  gates_.Enter(v1::RUN_GATE_BYTES, At(10));
  gates_.Enter(v1::RUN_GATE_SESSION, At(20));
  gates_.mark()->Settled(At(15));
  EXPECT_EQ(gates_.At(At(25))[v1::RUN_GATE_SESSION], 5);
  EXPECT_EQ(gates_.gate(), v1::RUN_GATE_SESSION);
}

TEST_F(RunGatesTest, TheMarkMayOutliveTheGates) {
  auto gates = std::make_unique<RunGates>(&served_, red_);
  const std::shared_ptr<RunGates::Mark> mark = gates->mark();
  gates.reset();
  mark->Settled(At(5));
}

// Threads read the clock before they have the lock.
TEST_F(RunGatesTest, AnEarlierTimeCountsAsTheLast) {
  gates_.Enter(v1::RUN_GATE_SESSION, At(20));
  gates_.Enter(v1::RUN_GATE_WORKER, At(15));
  const RunGates::Times times = gates_.At(At(18));
  EXPECT_EQ(Sum(times), 0);
  EXPECT_EQ(Sum(gates_.At(At(25))), 5);
}

TEST_F(RunGatesTest, WithoutServedTimeATurnIsTheWorkers) {
  RunGates gates(nullptr, nullptr);
  gates.Enter(v1::RUN_GATE_WORKER, At(0));
  EXPECT_EQ(gates.At(At(7))[v1::RUN_GATE_WORKER], 7);
  EXPECT_EQ(gates.Now(), v1::RUN_GATE_WORKER);
}

}  // namespace
}  // namespace djinn::worker
