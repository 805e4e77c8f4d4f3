#include "scheduler/scaling/demand.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using semantics::Phase;
using ::testing::DoubleNear;
using ::testing::Each;

double Of(const PhaseAmounts& amounts, Phase phase) {
  return amounts[static_cast<size_t>(phase)];
}

// Adds half a second of work every second, for `seconds`.
ArrivalMeter HalfADevice(int seconds) {
  ArrivalMeter meter;
  for (int i = 0; i <= seconds; ++i) {
    meter.Add(Phase::kLlmDecode, absl::Milliseconds(500), absl::Seconds(i));
  }
  return meter;
}

TEST(DemandTest, SteadyArrivalsAreTheDemand) {
  EXPECT_NEAR(Of(HalfADevice(600).Rates(absl::Seconds(600)), Phase::kLlmDecode),
              0.5, 0.01);
  // The rate is right from soon after the beginning.
  EXPECT_NEAR(Of(HalfADevice(20).Rates(absl::Seconds(20)), Phase::kLlmDecode),
              0.5, 0.05);
}

TEST(DemandTest, MoreThanThereIsCanArrive) {
  ArrivalMeter meter;
  for (int i = 0; i <= 300; ++i) {
    meter.Add(Phase::kTraining, absl::Seconds(7), absl::Seconds(i));
  }
  EXPECT_NEAR(Of(meter.Rates(absl::Seconds(300)), Phase::kTraining), 7, 0.1);
}

TEST(DemandTest, ItFallsWhenNothingComes) {
  const ArrivalMeter meter = HalfADevice(600);
  EXPECT_NEAR(Of(meter.Rates(absl::Seconds(660)), Phase::kLlmDecode),
              0.5 / 2.718, 0.01);
  EXPECT_THAT(meter.Rates(absl::Hours(2)), Each(DoubleNear(0, 1e-9)));
}

TEST(DemandTest, WithoutArrivalsThereIsNone) {
  EXPECT_THAT(ArrivalMeter().Rates(absl::Hours(1)), Each(0.0));
}

TEST(DemandTest, QueuesAndWaitingDevicesCount) {
  DemandInputs inputs;
  const auto phase = static_cast<size_t>(Phase::kForward);
  inputs.arrival_rates[phase] = 1.5;
  inputs.queued_seconds[phase] = 30;
  inputs.waiting_devices[phase] = 2;
  EXPECT_DOUBLE_EQ(Of(Demand(inputs), Phase::kForward), 1.5 + 0.5 + 2);
  EXPECT_EQ(Of(Demand(inputs), Phase::kTraining), 0);
}

TEST(DemandTest, WorkersAreBusyAsAskedAndKeepState) {
  EXPECT_EQ(DesiredWorkers(0, 0.7, 0), 0);
  EXPECT_EQ(DesiredWorkers(0.01, 0.7, 0), 1);
  EXPECT_EQ(DesiredWorkers(2.1, 0.7, 0), 3);
  EXPECT_EQ(DesiredWorkers(2.11, 0.7, 0), 4);
  EXPECT_EQ(DesiredWorkers(0, 0.7, 5), 5);
}

}  // namespace
}  // namespace djinn::scheduler
