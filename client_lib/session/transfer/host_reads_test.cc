// Tests reads of values that this process computed itself.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3;

srg::TensorView Bytes(int64_t first, int64_t count = 1) {
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {count};
  view.strides = {1};
  view.storage_offset = first;
  return view;
}

class Told final : public HostValue {
 public:
  explicit Told(bool can_tell) : can_tell_(can_tell) {}
  HostBytes Bytes() const override {
    return can_tell_ ? std::make_shared<const std::string>("ABCD") : nullptr;
  }

 private:
  const bool can_tell_;
};

class HostReadsTest : public DeviceTest {
 protected:
  std::string Read(const srg::TensorView& view) {
    std::string value(static_cast<size_t>(*srg::ElementCount(view)), '?');
    EXPECT_TRUE(
        device_->Read(kLane, storage_.get(), view, value.data(), value.size())
            .ok());
    return value;
  }
  uint64_t answered_here() {
    return session_->statistics().reads_answered_here;
  }
  StorageAt Now(const StoragePtr& storage) {
    return {storage.get(), device_->VersionOf(*storage.get())};
  }
  // Keeps bytes that differ from the worker's, to show which side answers.
  void Keep(const StorageAt& written, std::vector<StorageAt> operands = {},
            bool readable = true, bool can_tell = true) {
    device_->KeepHostValue(written, operands,
                           std::make_shared<const Told>(can_tell), readable);
  }
  bool IsKnown() { return device_->FindHostValue(Now(storage_)) != nullptr; }
  absl::Status Write(const StoragePtr& storage, uint32_t lane = kLane) {
    return Record(*device_, lane, MakeCall(7, {{storage, kReads | kWrites}}));
  }
  // Returns the worker's contents, because a read does not show which of two
  // writes it waits for.
  std::string OnWorker() {
    EXPECT_TRUE(device_->Synchronize().ok());
    return cluster_.worker().contents(storage_->id());
  }

  StoragePtr storage_ = Uploaded("abcd");
};

TEST_F(HostReadsTest, OneElementIsReadHere) {
  Keep(Now(storage_));
  EXPECT_EQ(Read(Bytes(2)), "C");
  EXPECT_EQ(Read(Bytes(3)), "D");
  EXPECT_EQ(answered_here(), 2u);
  EXPECT_EQ(Read(Bytes(0, 4)), "abcd");
  EXPECT_EQ(answered_here(), 2u);
}

TEST_F(HostReadsTest, UnavailableHostValueIsReadFromTheWorker) {
  Keep(Now(storage_), {}, /*readable=*/true, /*can_tell=*/false);
  EXPECT_EQ(Read(Bytes(2)), "c");
  EXPECT_EQ(answered_here(), 0u);
}

TEST_F(HostReadsTest, AnElementBehindTheEndIsTheWorkersToRefuse) {
  Keep(Now(storage_));
  char value = '?';
  EXPECT_FALSE(device_->Read(kLane, storage_.get(), Bytes(4), &value, 1).ok());
  EXPECT_EQ(answered_here(), 0u);
}

TEST_F(HostReadsTest, UnreadableValueIsReadFromTheWorker) {
  Keep(Now(storage_), {}, /*readable=*/false);
  EXPECT_TRUE(IsKnown());
  EXPECT_EQ(Read(Bytes(1)), "b");
  EXPECT_EQ(answered_here(), 0u);
}

TEST_F(HostReadsTest, ItEndsTheSegmentAsEveryReadDoes) {
  const StoragePtr other = Uploaded("efgh");
  const auto runs_of_two_writes = [&] {
    const uint64_t before = session_->statistics().runs;
    EXPECT_TRUE(Write(other).ok());
    Read(Bytes(2));
    EXPECT_TRUE(Write(other).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return session_->statistics().runs - before;
  };
  EXPECT_EQ(runs_of_two_writes(), 2u);
  EXPECT_EQ(answered_here(), 0u);
  Keep(Now(storage_));
  EXPECT_EQ(runs_of_two_writes(), 2u);
  EXPECT_EQ(answered_here(), 1u);
}

TEST_F(HostReadsTest, WhateverWritesMakesItUnknown) {
  const StoragePtr other = Uploaded("efgh");
  const std::vector<std::function<absl::Status()>> writes = {
      [&] { return Write(storage_); },
      [&] { return Write(storage_, kLane + 1); },
      [&] { return device_->Upload(kLane, storage_.get(), {"ijkl", nullptr}); },
      [&] { return device_->Resize(kLane, storage_.get(), 5); },
      [&] { return device_->Resize(kLane, storage_.get(), 4); },
  };
  uint64_t answered = 0;
  for (const auto& write : writes) {
    Keep(Now(storage_));
    const bool has_four = storage_->size_bytes() == 4;
    if (has_four) {
      EXPECT_EQ(Read(Bytes(2)), "C");
      ++answered;
    }
    ASSERT_TRUE(write().ok());
    EXPECT_FALSE(IsKnown());
    EXPECT_EQ(Read(Bytes(2)), OnWorker().substr(2, 1));
  }
  EXPECT_EQ(answered_here(), answered);
}

TEST_F(HostReadsTest, ValueOverwrittenMeanwhileIsNotKept) {
  const StoragePtr operand = Uploaded("efgh");
  const StorageAt written = Now(storage_), read = Now(operand);
  ASSERT_TRUE(Write(operand).ok());
  Keep(written, {read});
  EXPECT_FALSE(IsKnown());
  Keep(written, {Now(operand)});
  EXPECT_TRUE(IsKnown());
  ASSERT_TRUE(Write(storage_).ok());
  Keep(written);
  EXPECT_FALSE(IsKnown());
}

TEST_F(HostReadsTest, AnErrorMakesAllUnknown) {
  Keep(Now(storage_));
  cluster_.worker().Set(&FakeScript::fail_next_run, 5);
  ASSERT_TRUE(Write(Uploaded("efgh")).ok());
  EXPECT_FALSE(device_->Synchronize().ok());
  EXPECT_FALSE(IsKnown());
}

TEST_F(HostReadsTest, ARecordingIsRefusedAsForEveryRead) {
  Keep(Now(storage_));
  ASSERT_TRUE(device_->graphs().Start(kLane).ok());
  EXPECT_EQ(Read(Bytes(2)), "C");
  EXPECT_EQ(ErrorReason(device_->graphs().Refusal(kLane)), "READS_VALUE");
  device_->graphs().Drop(kLane);
}

TEST_F(HostReadsTest, AClosedSessionAnswersNothing) {
  Keep(Now(storage_));
  session_->Close(absl::Seconds(1)).IgnoreError();
  char value = '?';
  EXPECT_FALSE(device_->Read(kLane, storage_.get(), Bytes(2), &value, 1).ok());
}

}  // namespace
}  // namespace djinn
