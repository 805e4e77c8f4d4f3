#include "client_lib/session/transfer/read_table.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace djinn {
namespace {

std::shared_ptr<ReadWait> NewWait(uint64_t transfer_id = 0) {
  auto wait = std::make_shared<ReadWait>(nullptr, 8);
  wait->transfer_id = transfer_id;
  return wait;
}

TEST(ReadTableTest, AnAnswerIsTakenOnce) {
  ReadTable table;
  EXPECT_TRUE(table.empty());
  const auto wait = NewWait();
  table.AddSent(7, wait);
  EXPECT_FALSE(table.empty());
  EXPECT_FALSE(table.has_bulk());
  EXPECT_EQ(table.Find(7), wait.get());
  EXPECT_EQ(table.Find(8), nullptr);
  EXPECT_EQ(table.TakeAnswered(7), wait);
  EXPECT_EQ(table.TakeAnswered(7), nullptr);
  EXPECT_TRUE(table.empty());
}

TEST(ReadTableTest, BytesOnBulkOutliveTheAnswer) {
  ReadTable table;
  const auto wait = NewWait(/*transfer_id=*/3);
  table.AddSent(7, wait);
  EXPECT_EQ(table.TakeAnswered(7), wait);
  EXPECT_FALSE(table.empty());
  EXPECT_TRUE(table.has_bulk());
  EXPECT_EQ(table.FindBulk(3), wait);
  EXPECT_EQ(table.FindBulk(7), nullptr);
  table.EraseBulk(3);
  EXPECT_EQ(table.FindBulk(3), nullptr);
  EXPECT_TRUE(table.empty());
}

TEST(ReadTableTest, WatchersAreDueOnceAndInOrder) {
  ReadTable table;
  const auto first = NewWait(), second = NewWait(), unwatched = NewWait();
  std::vector<int> called;
  table.Watch(first.get(), [&] { called.push_back(1); });
  table.Watch(first.get(), [&] { called.push_back(2); });
  table.Watch(second.get(), [&] { called.push_back(3); });
  table.Finish(unwatched.get());
  EXPECT_FALSE(table.has_due());
  table.Finish(first.get());
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(table.has_due());
  EXPECT_TRUE(table.has_watched());
  EXPECT_TRUE(called.empty());  // the table calls no callback itself
  for (const auto& callback : table.TakeDue()) callback();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
  EXPECT_FALSE(table.has_due());
  table.Finish(first.get());
  EXPECT_FALSE(table.has_due());
}

TEST(ReadTableTest, UnwatchedReadIsNotCalled) {
  ReadTable table;
  const auto first = NewWait(), second = NewWait();
  table.Watch(first.get(), [] { FAIL(); });
  int called = 0;
  table.Watch(second.get(), [&] { ++called; });
  table.Unwatch(first.get());
  table.FinishWatched();
  EXPECT_FALSE(table.has_watched());
  for (const auto& callback : table.TakeDue()) callback();
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(second->done);  // it did not finish
}

TEST(PrefetchedReadsTest, OnlyTheSameVersionAndViewAreFound) {
  PrefetchedReads table;
  const StorageVersion version = {.storage_id = 1, .version = 3, .bytes = 64};
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {2};
  view.strides = {1};
  const auto wait = NewWait();
  table.Add(version, view, wait);
  StorageVersion other = version;
  other.storage_id = 2;
  EXPECT_EQ(table.Take(other, view), nullptr);
  srg::TensorView shorter = view;
  shorter.sizes = {1};
  EXPECT_EQ(table.Take(version, shorter), nullptr);
  StorageVersion later = version;
  ++later.version;
  EXPECT_EQ(table.Take(later, view), nullptr);
  EXPECT_EQ(table.Take(version, view), wait);
  EXPECT_EQ(table.Take(version, view), nullptr);
}

TEST(PrefetchedReadsTest, TheOldestReadIsGivenUp) {
  PrefetchedReads table;
  const StorageVersion version = {.storage_id = 1, .version = 3, .bytes = 64};
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {1};
  view.strides = {1};
  for (size_t i = 0; i <= PrefetchedReads::kMaxReads; ++i) {
    view.storage_offset = static_cast<int64_t>(i);
    table.Add(version, view, NewWait());
  }
  view.storage_offset = 0;
  EXPECT_EQ(table.Take(version, view), nullptr);
  view.storage_offset = 1;
  EXPECT_NE(table.Take(version, view), nullptr);
}

}  // namespace
}  // namespace djinn
