#include "client_lib/session/device/outgoing/work_queue.h"

#include <cstdint>
#include <optional>
#include <variant>

#include "client_lib/session/recording/segment.h"
#include "client_lib/session/stream/message_log.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

Work Seed(uint64_t seed, size_t bytes = 0) {
  return {0, StoragePtr(), bytes, SeedWork{0, seed}};
}

uint64_t SeedOf(const std::optional<Work>& work) {
  return std::get<SeedWork>(work->action).seed;
}

// Returns a log whose window has room for `messages` messages of a kilobyte in
// all.
MessageLog LogWithWindow(uint64_t messages) {
  MessageLog log;
  v1::Window window;
  window.set_messages(messages);
  window.set_bytes(1024);
  log.SetWindow(window);
  return log;
}

TEST(WorkQueueTest, WorkLeavesInItsOrder) {
  WorkQueue queue;
  EXPECT_FALSE(queue.Pop().has_value());
  queue.Push(Seed(1), /*needs_lease=*/false);
  EXPECT_FALSE(queue.needs_lease());
  queue.Push(Seed(2), /*needs_lease=*/true);
  EXPECT_TRUE(queue.needs_lease());
  EXPECT_EQ(SeedOf(queue.Pop()), 1u);
  EXPECT_EQ(SeedOf(queue.Pop()), 2u);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pushed(), 2u);
  EXPECT_EQ(queue.popped(), 2u);
}

TEST(WorkQueueTest, QueuedAndHeldWorkCountsForTheWindow) {
  WorkQueue queue;
  MessageLog log = LogWithWindow(2);
  queue.SetRoom(log);
  queue.Push(Seed(1), false);
  EXPECT_FALSE(queue.full());
  queue.Push(Seed(2), false);
  EXPECT_TRUE(queue.full());
  ASSERT_TRUE(queue.Pop().has_value());
  EXPECT_TRUE(queue.held());
  EXPECT_TRUE(queue.full());
  // The work became a message that needs no room, such as a free.
  queue.SetRoom(log, /*ends=*/true);
  EXPECT_FALSE(queue.held());
  EXPECT_FALSE(queue.full());
  queue.Push(Seed(3, /*bytes=*/1024), false);
  EXPECT_TRUE(queue.full());
}

TEST(WorkQueueTest, HeldWorkIsOvertakenByAnOfferThatIsPutFirst) {
  WorkQueue queue;
  queue.Push(Seed(1), false);
  queue.PushFirst(Seed(2));
  ASSERT_TRUE(queue.Pop().has_value());
  EXPECT_FALSE(queue.overtaken());
  queue.PushFirst(Seed(3));
  EXPECT_TRUE(queue.overtaken());
  ASSERT_TRUE(queue.Pop().has_value());
  EXPECT_FALSE(queue.overtaken());
}

TEST(WorkQueueTest, DroppedWorkIsHandedBack) {
  WorkQueue queue;
  queue.Push(Seed(1), false);
  queue.Push(Seed(2), false);
  ASSERT_TRUE(queue.Pop().has_value());
  EXPECT_EQ(queue.Drop().size(), 1u);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.held());
}

TEST(WorkQueueTest, ClearedSegmentsAreTakenOnce) {
  WorkQueue queue;
  Segment segment;
  queue.GiveBack(&segment);
  EXPECT_EQ(queue.TakeCleared().size(), 1u);
  EXPECT_TRUE(queue.TakeCleared().empty());
}

}  // namespace
}  // namespace djinn
