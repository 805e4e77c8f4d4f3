// Small storages that are read piece by piece.
#include "client_lib/session/part_reads.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3, kOtherLane = 4;
constexpr int64_t kElements = 6;

srg::TensorView Elements(int64_t first, int64_t count = 1, int64_t stride = 1) {
  srg::TensorView view;
  view.data_type = srg::DataType::kInt16;
  view.sizes = {count};
  view.strides = {stride};
  view.storage_offset = first;
  return view;
}

class PartReadsTest : public testing::Test {
 protected:
  PartReadsTest() : session_(cluster_.Open()), device_(*session_->Device(0)) {
    storage_ = NewStorage(Pattern(kElements * 2));
  }
  ~PartReadsTest() override { ExpectNoViolations(cluster_.worker()); }

  StoragePtr NewStorage(const std::string& bytes) {
    const StoragePtr storage = device_->NewStorage(bytes.size());
    EXPECT_TRUE(device_->Upload(kLane, storage.get(), {bytes, nullptr}).ok());
    return storage;
  }
  // The view's bytes, as the program gets them and as the worker has them.
  std::string Read(const StoragePtr& storage, const srg::TensorView& view,
                   uint32_t lane = kLane) {
    std::string value(2 * *srg::ElementCount(view), '?');
    EXPECT_TRUE(
        device_->Read(lane, storage.get(), view, value.data(), value.size())
            .ok());
    std::string expected;
    const std::string contents = cluster_.worker().contents(storage->id());
    for (int64_t i = 0; i < view.sizes[0]; ++i) {
      expected +=
          contents.substr(2 * (view.storage_offset + i * view.strides[0]), 2);
    }
    EXPECT_EQ(value, expected);
    return value;
  }
  // So that its elements are here.
  void ReadTwoParts(const StoragePtr& storage) {
    Read(storage, Elements(0));
    Read(storage, Elements(1));
    reads();
  }
  // Those that the worker carried out since the last call.
  int reads() {
    EXPECT_TRUE(device_->Synchronize().ok());
    const std::vector<v1::Ordered> all = cluster_.worker().received();
    int count = 0;
    for (; seen_ < all.size(); ++seen_) count += all[seen_].has_read();
    return count;
  }
  void Write(const StoragePtr& storage, uint32_t lane = kLane,
             uint8_t access = kReads | kWrites) {
    EXPECT_TRUE(Record(*device_, lane, MakeCall(7, {{storage, access}})).ok());
  }

  FakeCluster cluster_;
  const std::unique_ptr<Session> session_;
  const std::shared_ptr<VirtualDevice> device_;
  StoragePtr storage_;
  size_t seen_ = 0;
};

TEST_F(PartReadsTest, TheSecondPartBringsTheOthers) {
  Read(storage_, Elements(0));
  EXPECT_EQ(reads(), 1);
  for (int64_t i = 0; i < kElements; ++i) Read(storage_, Elements(i));
  EXPECT_EQ(reads(), 1);
  // Counted all the same.
  EXPECT_EQ(session_->statistics().reads, 1u + kElements);
}

TEST_F(PartReadsTest, AnyViewIsAnswered) {
  ReadTwoParts(storage_);
  EXPECT_EQ(Read(storage_, Elements(1, 2, 3)).size(), 4u);
  EXPECT_EQ(Read(storage_, Elements(2, 3, 0)).size(), 6u);
  EXPECT_EQ(reads(), 0);
}

TEST_F(PartReadsTest, TheWholeIsReadAsEver) {
  for (int i = 0; i < 3; ++i) Read(storage_, Elements(0, kElements));
  EXPECT_EQ(reads(), 3);
}

TEST_F(PartReadsTest, LargeStoragesAreNotReadWhole) {
  const StoragePtr large = NewStorage(Pattern(PartReads::kMaxBytes + 2));
  const uint64_t before = session_->statistics().bytes_down;
  for (int64_t i = 0; i < 5; ++i) Read(large, Elements(i));
  EXPECT_EQ(reads(), 5);
  EXPECT_LT(session_->statistics().bytes_down - before, PartReads::kMaxBytes);
}

TEST_F(PartReadsTest, WhatWasWrittenInPlaceIsReadAnew) {
  ReadTwoParts(storage_);
  const std::string before = Read(storage_, Elements(2));
  Write(storage_);
  EXPECT_NE(Read(storage_, Elements(2)), before);
  EXPECT_EQ(reads(), 1);
  // The parts of another version count anew.
  Write(storage_);
  Read(storage_, Elements(3));
  Write(storage_);
  Read(storage_, Elements(4));
  EXPECT_EQ(reads(), 2);
}

TEST_F(PartReadsTest, WhatAnotherThreadWroteIsReadAnew) {
  ReadTwoParts(storage_);
  const std::string before = Read(storage_, Elements(2));
  std::thread([&] { Write(storage_, kOtherLane); }).join();
  EXPECT_NE(Read(storage_, Elements(2)), before);
  EXPECT_EQ(reads(), 1);
}

TEST_F(PartReadsTest, WhatWasUploadedIsReadAnew) {
  ReadTwoParts(storage_);
  const std::string bytes = "another dozen";
  ASSERT_TRUE(device_
                  ->Upload(kLane, storage_.get(),
                           {bytes.substr(0, 2 * kElements), nullptr})
                  .ok());
  EXPECT_EQ(Read(storage_, Elements(2)), bytes.substr(4, 2));
  EXPECT_EQ(reads(), 1);
}

TEST_F(PartReadsTest, OtherThreadsAreAnsweredToo) {
  ReadTwoParts(storage_);
  std::thread([&] { Read(storage_, Elements(5), kOtherLane); }).join();
  EXPECT_EQ(reads(), 0);
}

TEST_F(PartReadsTest, AnErrorIsNotKept) {
  cluster_.worker().FailNextRun(9);
  Write(storage_);
  std::string value(2, '?');
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(device_
                     ->Read(kLane, storage_.get(), Elements(i), value.data(),
                            value.size())
                     .ok());
  }
  EXPECT_EQ(reads(), 4);
}

TEST_F(PartReadsTest, OnesThatWaitAreServedToo) {
  Read(storage_, Elements(0));
  std::string second(2, '?'), third(2, '?');
  const auto whole = device_->StartRead(kLane, storage_.get(), Elements(1),
                                        second.data(), second.size());
  ASSERT_TRUE(whole.ok());
  ASSERT_TRUE((*whole)->Wait(absl::Seconds(60)).ok());
  const auto part = device_->StartRead(kLane, storage_.get(), Elements(2),
                                       third.data(), third.size());
  ASSERT_TRUE(part.ok());
  EXPECT_TRUE((*part)->Ready());
  ASSERT_TRUE((*part)->Wait(absl::Seconds(60)).ok());
  const std::string contents = cluster_.worker().contents(storage_->id());
  EXPECT_EQ(second + third, contents.substr(2, 4));
  EXPECT_EQ(reads(), 2);
}

TEST_F(PartReadsTest, FewAreKept) {
  std::vector<StoragePtr> storages;
  for (size_t i = 0; i <= PartReads::kMaxKept; ++i) {
    storages.push_back(NewStorage(Pattern(8)));
    ReadTwoParts(storages.back());
  }
  Read(storages.back(), Elements(2));
  EXPECT_EQ(reads(), 0);
  Read(storages.front(), Elements(2));
  EXPECT_EQ(reads(), 1);
}

}  // namespace
}  // namespace djinn
