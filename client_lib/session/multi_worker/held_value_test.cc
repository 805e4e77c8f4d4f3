#include "client_lib/session/multi_worker/held_value.h"

#include "gtest/gtest.h"

namespace djinn {
namespace {

StoragePtr Storage() {
  return StoragePtr(new RemoteStorage(/*id=*/0, nullptr, 8));
}

TEST(HeldValueTest, WhoHasPinnedItSeesToItsEnd) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  EXPECT_EQ(value.Pin().get(), storage.get());
  EXPECT_EQ(value.Pin().get(), storage.get());
  EXPECT_FALSE(value.Unpin());
  EXPECT_FALSE(value.Die());
  // No other user can pin it any more.
  EXPECT_FALSE(value.Pin());
  EXPECT_TRUE(value.Unpin());
}

TEST(HeldValueTest, UnpinnedValueDiesAtOnce) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  ASSERT_TRUE(value.Pin());
  EXPECT_FALSE(value.Unpin());
  EXPECT_TRUE(value.Die());
  EXPECT_FALSE(value.Pin());
}

TEST(HeldValueTest, WhatIsOverwrittenIsGone) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  value.Leave();
  EXPECT_FALSE(value.Pin());
}

}  // namespace
}  // namespace djinn
