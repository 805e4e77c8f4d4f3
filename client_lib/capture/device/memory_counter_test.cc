#include "client_lib/capture/device/memory_counter.h"

#include <gtest/gtest.h>

namespace djinn::capture {
namespace {

c10::CachingAllocator::Stat Bytes(const MemoryCounter& counter) {
  return counter.Statistics().allocated_bytes[0];
}

TEST(MemoryCounterTest, CountsLiveBytesAndPeak) {
  MemoryCounter counter;
  counter.Created(100);
  counter.Created(50);
  counter.Released(100);
  EXPECT_EQ(Bytes(counter).current, 50);
  EXPECT_EQ(Bytes(counter).peak, 150);
  EXPECT_EQ(Bytes(counter).allocated, 150);
  EXPECT_EQ(Bytes(counter).freed, 100);
  EXPECT_EQ(counter.Statistics().allocation[0].current, 1);
  EXPECT_EQ(counter.Statistics().allocation[0].peak, 2);
}

TEST(MemoryCounterTest, ResizeCountsNoNewStorage) {
  MemoryCounter counter;
  counter.Created(10);
  counter.Resized(10, 30);
  EXPECT_EQ(Bytes(counter).current, 30);
  counter.Resized(30, 5);
  EXPECT_EQ(Bytes(counter).current, 5);
  EXPECT_EQ(counter.Statistics().allocation[0].allocated, 1);
}

TEST(MemoryCounterTest, ResetKeepsLiveBytes) {
  MemoryCounter counter;
  counter.Created(100);
  counter.Released(100);
  counter.Created(7);
  counter.ResetPeaks();
  EXPECT_EQ(Bytes(counter).peak, 7);
  counter.ResetTotals();
  EXPECT_EQ(Bytes(counter).allocated, 0);
  EXPECT_EQ(Bytes(counter).freed, 0);
  EXPECT_EQ(Bytes(counter).current, 7);
}

TEST(MemoryCounterTest, EachDeviceHasItsOwnCounter) {
  MemoryCounter::Of(0).Created(3);
  EXPECT_EQ(Bytes(MemoryCounter::Of(0)).current, 3);
  EXPECT_EQ(Bytes(MemoryCounter::Of(1)).current, 0);
  EXPECT_EQ(&MemoryCounter::Of(1), &MemoryCounter::Of(1));
  MemoryCounter::Of(0).Released(3);
}

}  // namespace
}  // namespace djinn::capture
