#include "coordinator/graphs/graph_intake.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

// Returns the size of a graph in the queue.
uint64_t BytesOf(int64_t size) {
  return TestGraph(size).SpaceUsedLong() + v1::GraphNotes().SpaceUsedLong();
}

TEST(GraphIntakeTest, GraphBeyondTheQueuesRoomIsRefused) {
  GraphStore store(1 << 20);
  // The queue has room for one graph, and nearly for another.
  GraphIntake intake(&store, 2 * BytesOf(3) - 1);
  absl::Notification begun, go_on, second;
  ASSERT_TRUE(intake
                  .Submit("red", TestGraph(3), {}, nullptr,
                          [&](const v1::Graph& graph,
                              const absl::StatusOr<std::string>& first) {
                            EXPECT_EQ(graph.SerializeAsString(),
                                      TestGraph(3).SerializeAsString());
                            EXPECT_TRUE(first.ok());
                            begun.Notify();
                            go_on.WaitForNotificationWithTimeout(
                                Patience::kLong);
                          })
                  .ok());
  for (Patience patience; !begun.HasBeenNotified();) patience.Yield();
  // The first graph was taken from the queue; another one waits.
  ASSERT_TRUE(
      intake
          .Submit("red", TestGraph(4), {}, nullptr,
                  [&](const v1::Graph&, const absl::StatusOr<std::string>&) {
                    second.Notify();
                  })
          .ok());
  const absl::Status refused = intake.Submit(
      "red", TestGraph(5), {}, nullptr,
      [](const v1::Graph&, const absl::StatusOr<std::string>&) { FAIL(); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "GRAPHS_QUEUED");
  go_on.Notify();
  for (Patience patience; !second.HasBeenNotified();) patience.Yield();
  EXPECT_EQ(store.List().items.size(), 2u);
}

// Blocks the intake's thread at a first graph until GoOn().
class BusyIntake {
 public:
  BusyIntake(GraphIntake* intake, const std::string& tenant) {
    EXPECT_TRUE(
        intake
            ->Submit(
                tenant, TestGraph(1), {}, nullptr,
                [this](const v1::Graph&, const absl::StatusOr<std::string>&) {
                  begun_.Notify();
                  go_on_.WaitForNotificationWithTimeout(Patience::kLong);
                })
            .ok());
    for (Patience patience; !begun_.HasBeenNotified();) patience.Yield();
  }
  void GoOn() { go_on_.Notify(); }

 private:
  absl::Notification begun_, go_on_;
};

TEST(GraphIntakeTest, TenantsTakeTurns) {
  GraphStore store(1 << 20);
  std::vector<std::string> order;
  absl::Notification all;
  GraphIntake intake(&store);
  BusyIntake busy(&intake, "green");
  const auto submit = [&](const std::string& tenant, int64_t size) {
    EXPECT_TRUE(intake
                    .Submit(tenant, TestGraph(size), {}, nullptr,
                            [&, tenant](const v1::Graph&,
                                        const absl::StatusOr<std::string>&) {
                              order.push_back(tenant);
                              if (order.size() == 6) all.Notify();
                            })
                    .ok());
  };
  for (int64_t i = 0; i < 4; ++i) submit("red", 10 + i);
  submit("blue", 20);
  submit("yellow", 30);
  busy.GoOn();
  for (Patience patience; !all.HasBeenNotified();) patience.Yield();
  EXPECT_THAT(order, testing::ElementsAre("red", "yellow", "blue", "red", "red",
                                          "red"));
}

TEST(GraphIntakeTest, ATenantLeavesRoomForOthers) {
  GraphStore store(1 << 20);
  const uint64_t each = BytesOf(100);
  int done = 0;
  absl::Notification all;
  GraphIntake intake(&store, 6 * each);
  BusyIntake busy(&intake, "green");
  const auto submit = [&](const std::string& tenant) {
    return intake.Submit(
        tenant, TestGraph(100), {}, nullptr,
        [&](const v1::Graph&, const absl::StatusOr<std::string>&) {
          if (++done == 6) all.Notify();
        });
  };
  // A tenant may fill half of the queue.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(submit("red").ok()) << i;
  const absl::Status refused = submit("red");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "GRAPHS_QUEUED");
  EXPECT_THAT(refused.message(),
              testing::HasSubstr(absl::StrCat(3 * each, " of ", 6 * each,
                                              " are queued, ", 3 * each,
                                              " of them the tenant's")));
  // The other tenant may fill what is left.
  EXPECT_TRUE(submit("blue").ok());
  EXPECT_TRUE(submit("blue").ok());
  EXPECT_FALSE(submit("red").ok());
  EXPECT_EQ(ErrorReason(submit("blue")), "GRAPHS_QUEUED");
  EXPECT_TRUE(submit("yellow").ok());
  busy.GoOn();
  for (Patience patience; !all.HasBeenNotified();) patience.Yield();
  // Processed graphs no longer count as queued.
  for (Patience patience; !submit("red").ok();) patience.Yield();
}

}  // namespace
}  // namespace djinn::coordinator
