#include "common/transport/arrival.h"

#include <thread>

#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(ArrivalTest, IsTakenOnceByTheThreadThatNotedIt) {
  Arrival::Note();
  // No Interest exists.
  EXPECT_FALSE(Arrival::Take(Clock::Real()).has_value());
  const Arrival::Interest interest;
  const absl::Duration before = Clock::Real()->Monotonic();
  Arrival::Note();
  std::thread other(
      [] { EXPECT_FALSE(Arrival::Take(Clock::Real()).has_value()); });
  other.join();
  const std::optional<absl::Duration> taken = Arrival::Take(Clock::Real());
  ASSERT_TRUE(taken.has_value());
  EXPECT_GE(*taken, before);
  EXPECT_FALSE(Arrival::Take(Clock::Real()).has_value());
}

TEST(ArrivalTest, SaysNothingToAnotherClock) {
  const Arrival::Interest interest;
  FakeClock clock;
  Arrival::Note();
  EXPECT_FALSE(Arrival::Take(&clock).has_value());
}

}  // namespace
}  // namespace djinn
