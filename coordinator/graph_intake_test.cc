#include "coordinator/graph_intake.h"

#include "absl/synchronization/notification.h"
#include "common/error.h"
#include "common/patience.h"
#include "coordinator/testing.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

// Of a structure as it is queued.
uint64_t BytesOf(int64_t size) {
  return TestStructure(size).SpaceUsedLong() +
         v1::StructureNotes().SpaceUsedLong();
}

TEST(GraphIntakeTest, WhatTheQueueHasNoRoomForIsRefused) {
  GraphStore store(1 << 20);
  // One, and nearly another.
  GraphIntake intake(&store, 2 * BytesOf(3) - 1);
  absl::Notification begun, go_on, second;
  ASSERT_TRUE(intake
                  .Submit("red", TestStructure(3), {}, nullptr,
                          [&](const v1::Structure& structure,
                              const absl::StatusOr<std::string>& first) {
                            EXPECT_EQ(structure.SerializeAsString(),
                                      TestStructure(3).SerializeAsString());
                            EXPECT_TRUE(first.ok());
                            begun.Notify();
                            go_on.WaitForNotificationWithTimeout(
                                Patience::kLong);
                          })
                  .ok());
  for (Patience patience; !begun.HasBeenNotified();) patience.Yield();
  // The first one is through; another one waits.
  ASSERT_TRUE(
      intake
          .Submit("red", TestStructure(4), {}, nullptr,
                  [&](const v1::Structure&,
                      const absl::StatusOr<std::string>&) { second.Notify(); })
          .ok());
  const absl::Status refused = intake.Submit(
      "red", TestStructure(5), {}, nullptr,
      [](const v1::Structure&, const absl::StatusOr<std::string>&) { FAIL(); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "STRUCTURES_QUEUED");
  go_on.Notify();
  for (Patience patience; !second.HasBeenNotified();) patience.Yield();
  EXPECT_EQ(store.List().items.size(), 2u);
}

}  // namespace
}  // namespace djinn::coordinator
