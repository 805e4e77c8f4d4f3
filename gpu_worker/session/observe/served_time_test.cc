#include "gpu_worker/session/observe/served_time.h"

#include <atomic>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Whom = ServedTime::Whom;

absl::Duration At(int64_t nanoseconds) {
  return absl::Nanoseconds(nanoseconds);
}

class ServedTimeTest : public testing::Test {
 protected:
  void Expect(int64_t at, const ServedTime::Tenant& tenant, int64_t own,
              int64_t others, int64_t batch = 0) {
    const ServedTime::Reading reading = served_.ReadAt(&tenant, at);
    EXPECT_EQ(reading.own, own) << at;
    EXPECT_EQ(reading.others, others) << at;
    EXPECT_EQ(reading.batch, batch) << at;
  }

  ServedTime served_;
  ServedTime::Tenant red_;
  ServedTime::Tenant blue_;
};

TEST_F(ServedTimeTest, NothingIsServedAtFirst) {
  Expect(100, red_, 0, 0);
  EXPECT_EQ(served_.ServesFor(&red_), Whom::kNobody);
}

TEST_F(ServedTimeTest, ATurnCountsWhileItGoesOn) {
  served_.Begin(&red_, At(10));
  Expect(15, red_, 5, 0);
  Expect(15, blue_, 0, 5);
  EXPECT_EQ(served_.ServesFor(&red_), Whom::kOwn);
  EXPECT_EQ(served_.ServesFor(&blue_), Whom::kOthers);
  served_.End(At(20));
  Expect(90, red_, 10, 0);
  Expect(90, blue_, 0, 10);
}

TEST_F(ServedTimeTest, PreemptingTurnIsTimeOfOthers) {
  served_.Begin(&red_, At(0));
  served_.Begin(&blue_, At(10));
  EXPECT_EQ(served_.ServesFor(&red_), Whom::kOthers);
  Expect(14, red_, 10, 4);
  served_.End(At(16));
  // The outer turn goes on.
  EXPECT_EQ(served_.ServesFor(&red_), Whom::kOwn);
  served_.End(At(20));
  Expect(20, red_, 14, 6);
  Expect(20, blue_, 6, 14);
}

TEST_F(ServedTimeTest, BatchingWindowIsTimeOfNoTenant) {
  served_.AwaitBatch(At(5));
  EXPECT_EQ(served_.ServesFor(&red_), Whom::kBatch);
  Expect(7, red_, 0, 0, 2);
  served_.EndAwaiting(At(9));
  served_.Begin(&red_, At(10));
  Expect(11, red_, 1, 0, 4);
  Expect(11, blue_, 0, 1, 4);
}

TEST_F(ServedTimeTest, AReadingFromBeforeTheTurnHasNothingOfIt) {
  served_.Begin(&red_, At(10));
  Expect(8, red_, 0, 0);
}

// A reading that a change interrupts would lose or double a turn.
TEST_F(ServedTimeTest, ReadingsAreOfOneMoment) {
  std::atomic<bool> stop{false};
  std::thread giver([&] {
    int64_t now = 0;
    while (!stop) {
      served_.Begin(now % 2 == 0 ? &red_ : &blue_, At(now));
      ++now;
      served_.End(At(now));
    }
  });
  int64_t before = 0;
  for (int i = 0; i < 200'000; ++i) {
    // The reading has all time until the last change, and none after it.
    const ServedTime::Reading reading = served_.ReadAt(&red_, 0);
    const int64_t sum = reading.own + reading.others;
    EXPECT_GE(sum, before);
    EXPECT_LE(std::abs(reading.own - reading.others), 1);
    before = sum;
  }
  stop = true;
  giver.join();
}

}  // namespace
}  // namespace djinn::worker
