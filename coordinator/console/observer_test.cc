#include "coordinator/console/observer.h"

#include "coordinator/console/testing/simulated_cluster.h"
#include "gtest/gtest.h"

namespace djinn::console {
namespace {

size_t RunCount(const Observer& observer) {
  size_t count = 0;
  observer.WithRuns(
      [&](const RunHistory& runs) { count = runs.by_change().size(); });
  return count;
}

TEST(ObserverTest, SeesEverythingAtTheFirstLook) {
  SimulatedCluster cluster({});
  FakeClock clock;
  Observer observer(&cluster, &clock, {});
  EXPECT_EQ(observer.now().snapshot, nullptr);
  ASSERT_EQ(observer.Look(), absl::OkStatus());
  const Observer::Now now = observer.now();
  EXPECT_EQ(now.round, 1u);
  EXPECT_EQ(now.snapshot->workers.workers_size(), 3);
  EXPECT_EQ(now.snapshot->waiting.size(), 1u);
  EXPECT_EQ(RunCount(observer), 24u);
  EXPECT_NE(observer.MemoryAt(absl::InfiniteFuture()), nullptr);
}

TEST(ObserverTest, AsksForRunsOfAFewSessionsInTurn) {
  SimulatedCluster cluster({.sessions = 5, .runs = 1});
  FakeClock clock;
  Observer observer(&cluster, &clock, {.sessions_per_round = 2});
  for (const size_t expected : {2, 4, 5}) {
    ASSERT_EQ(observer.Look(), absl::OkStatus());
    EXPECT_EQ(RunCount(observer), expected);
  }
}

TEST(ObserverTest, AFailureKeepsWhatWasSeen) {
  SimulatedCluster cluster({});
  FakeClock clock;
  Observer observer(&cluster, &clock, {});
  ASSERT_EQ(observer.Look(), absl::OkStatus());
  const absl::Time first = clock.Now();
  clock.Advance(absl::Seconds(1));
  cluster.Fail(absl::UnavailableError("away"));
  EXPECT_EQ(observer.Look().message(), "away");
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(observer.Look().message(), "away");
  const Observer::Now now = observer.now();
  EXPECT_EQ(now.snapshot->at, first);
  EXPECT_EQ(now.status.message(), "away");
  EXPECT_EQ(now.failing_since, first + absl::Seconds(1));
  cluster.Fail(absl::OkStatus());
  EXPECT_EQ(observer.Look(), absl::OkStatus());
  EXPECT_EQ(observer.now().status, absl::OkStatus());
}

TEST(ObserverTest, ALostWorkersLeasesHaveALineage) {
  SimulatedCluster cluster({.lost_every = 0, .migrated_every = 0});
  FakeClock clock;
  Observer observer(&cluster, &clock, {});
  ASSERT_EQ(observer.Look(), absl::OkStatus());
  cluster.Lose(1);
  ASSERT_EQ(observer.Look(), absl::OkStatus());
  observer.WithLeases([](const LeaseHistory& leases) {
    ASSERT_EQ(leases.ended().size(), 2u);  // Of sessions 1 and 4.
    for (const LeaseSpan& span : leases.ended()) {
      EXPECT_EQ(span.worker, "w00001");
      EXPECT_EQ(span.end_reason, "WORKER_LOST");
    }
  });
}

TEST(ObserverTest, LooksAtIntervals) {
  SimulatedCluster cluster({});
  FakeClock clock;
  Observer observer(&cluster, &clock, {.interval = absl::Seconds(2)});
  observer.Start();
  while (observer.now().round < 1) absl::SleepFor(absl::Milliseconds(1));
  while (observer.now().round < 3) {
    clock.Advance(absl::Seconds(1));
    absl::SleepFor(absl::Milliseconds(1));
  }
  observer.Stop();
}

}  // namespace
}  // namespace djinn::console
