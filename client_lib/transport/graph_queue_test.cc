#include "client_lib/transport/graph_queue.h"

#include "gtest/gtest.h"

namespace djinn {
namespace {

// Returns a request that its number distinguishes from others.
v1::SessionRequest Request(uint32_t number) {
  v1::SessionRequest request;
  request.mutable_stages()->set_number(number);
  return request;
}

uint32_t First(const GraphQueue& queue) {
  return queue.Front() == nullptr ? 0 : queue.Front()->stages().number();
}

TEST(GraphQueueTest, KeepsTheirOrder) {
  GraphQueue queue;
  EXPECT_EQ(queue.Front(), nullptr);
  queue.Pop();
  EXPECT_TRUE(queue.Push(Request(1), 10));
  EXPECT_TRUE(queue.Push(Request(2), 10));
  EXPECT_EQ(First(queue), 1u);
  // A look at the first request does not remove it.
  EXPECT_EQ(First(queue), 1u);
  queue.Pop();
  EXPECT_EQ(First(queue), 2u);
  queue.Pop();
  EXPECT_EQ(queue.Front(), nullptr);
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST(GraphQueueTest, TooManyAreDroppedAndCounted) {
  GraphQueue queue(2, 1000);
  EXPECT_TRUE(queue.Push(Request(1), 1));
  EXPECT_TRUE(queue.Push(Request(2), 1));
  EXPECT_FALSE(queue.Push(Request(3), 1));
  EXPECT_FALSE(queue.Push(Request(4), 1));
  EXPECT_EQ(queue.dropped(), 2u);
  queue.Pop();
  EXPECT_TRUE(queue.Push(Request(5), 1));
  queue.Pop();
  EXPECT_EQ(First(queue), 5u);
}

TEST(GraphQueueTest, TooManyBytesAreDroppedAndCounted) {
  GraphQueue queue(100, 1000);
  EXPECT_FALSE(queue.Push(Request(1), 1001));
  EXPECT_TRUE(queue.Push(Request(2), 600));
  EXPECT_FALSE(queue.Push(Request(3), 401));
  // A smaller request has room.
  EXPECT_TRUE(queue.Push(Request(4), 400));
  EXPECT_EQ(queue.dropped(), 2u);
  queue.Pop();
  EXPECT_TRUE(queue.Push(Request(5), 600));
  EXPECT_FALSE(queue.Push(Request(6), 1));
}

TEST(GraphQueueTest, ClearedQueueHasRoom) {
  GraphQueue queue(1, 1000);
  EXPECT_TRUE(queue.Push(Request(1), 1000));
  queue.Clear();
  EXPECT_EQ(queue.Front(), nullptr);
  EXPECT_EQ(queue.dropped(), 0u);
  EXPECT_TRUE(queue.Push(Request(2), 1000));
  EXPECT_EQ(First(queue), 2u);
}

}  // namespace
}  // namespace djinn
