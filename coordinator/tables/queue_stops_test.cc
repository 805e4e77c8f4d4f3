#include "coordinator/tables/queue_stops.h"

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

const absl::Time kNoon = absl::FromUnixSeconds(43200);

TEST(QueueStopsTest, StoppingAgainSaysOnlyWhetherItDrains) {
  QueueStops stops;
  EXPECT_EQ(stops.Find("red"), nullptr);
  stops.Add("red", /*drain=*/true, kNoon);
  stops.Add("red", /*drain=*/false, kNoon + absl::Hours(1));
  ASSERT_NE(stops.Find("red"), nullptr);
  EXPECT_FALSE(stops.Find("red")->drain);
  EXPECT_EQ(stops.Find("red")->since, kNoon);
  EXPECT_EQ(stops.Find("blue"), nullptr);
  EXPECT_TRUE(stops.Remove("red"));
  EXPECT_FALSE(stops.Remove("red"));
  EXPECT_EQ(stops.Find("red"), nullptr);
}

TEST(QueueStopsTest, OutlivesTheProcess) {
  QueueStops stops, next;
  stops.Add("red", /*drain=*/true, kNoon);
  for (const auto& [tenant, stop] : stops.all()) {
    next.Restore(tenant, QueueStops::Save(stop));
  }
  ASSERT_NE(next.Find("red"), nullptr);
  const v1::QueueStop described = QueueStops::Describe(*next.Find("red"));
  EXPECT_TRUE(described.drain());
  EXPECT_EQ(described.stop_time().seconds(), 43200);
}

TEST(QueueStopsTest, ErrorNamesTheQueueAndTheCommand) {
  const absl::Status why = QueueStopped("red");
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(why), "QUEUE_STOPPED");
  EXPECT_EQ(why.message(),
            "an operator has stopped the queue of tenant red: it gets no new "
            "leases");
  EXPECT_EQ(ResumeCommand("red"), "an operator: djinnctl resume queue red");
}

}  // namespace
}  // namespace djinn::coordinator
