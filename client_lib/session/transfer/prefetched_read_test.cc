// Tests the prefetch of values that a program is expected to read.
#include <string>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3;

class PrefetchedReadTest : public DeviceTest {
 protected:
  // Records a step's loss, and the calls that follow it.
  StoragePtr Forward(int op = 1) {
    StoragePtr loss = device_->NewStorage(4);
    EXPECT_TRUE(Record(*device_, kLane,
                       MakeCall(op, {{weights_, kReads}, {loss, kCreates}}))
                    .ok());
    return loss;
  }
  void Update() {
    EXPECT_TRUE(
        Record(*device_, kLane, MakeCall(2, {{weights_, kWrites}})).ok());
  }
  void Step() {
    const StoragePtr loss = Forward();
    Update();
    EXPECT_TRUE(ReadByte(*device_, kLane, loss).ok());
    Drop(loss);
  }
  // Returns the kinds of the messages executed since the last call.
  std::string Received() {
    EXPECT_TRUE(device_->Synchronize().ok());
    const std::vector<v1::Ordered> all = cluster_.worker().seen().received;
    std::string kinds;
    for (; seen_ < all.size(); ++seen_) {
      if (all[seen_].has_run()) kinds += "run ";
      if (all[seen_].has_read()) kinds += "read ";
    }
    return kinds;
  }

  const StoragePtr weights_ = Uploaded();
  size_t seen_ = 0;
};

TEST_F(PrefetchedReadTest, IsSentBehindTheCallThatMakesTheValue) {
  Step();
  EXPECT_EQ(Received(), "run read ");
  Step();
  EXPECT_EQ(Received(), "run read ");
  const StoragePtr loss = Forward();
  EXPECT_EQ(Received(), "run read ");
  Update();
  EXPECT_TRUE(ReadByte(*device_, kLane, loss).ok());
  EXPECT_EQ(Received(), "run ");
  EXPECT_EQ(session_->statistics().reads, 3);
}

TEST_F(PrefetchedReadTest, IsNoneForOtherCalls) {
  Step();
  Step();
  Received();
  Forward(/*op=*/5);
  EXPECT_EQ(Received(), "run ");
}

TEST_F(PrefetchedReadTest, DoesNotServeAValueThatWasWrittenAfterwards) {
  Step();
  Step();
  Received();
  const StoragePtr loss = Forward();
  EXPECT_EQ(Received(), "run read ");
  ASSERT_TRUE(Record(*device_, kLane, MakeCall(7, {{loss, kWrites}})).ok());
  EXPECT_TRUE(ReadByte(*device_, kLane, loss).ok());
  EXPECT_EQ(Received(), "run read ");
}

TEST_F(PrefetchedReadTest, StopsWhenTheProgramDoesNotRead) {
  Step();
  Step();
  Received();
  // A lane that continues without the read has another position. A lane that
  // reads a different value returns to the same position.
  const StoragePtr unread = Forward();
  EXPECT_EQ(Received(), "run read ");
  EXPECT_TRUE(ReadByte(*device_, kLane, weights_).ok());
  Received();
  Forward();
  EXPECT_EQ(Received(), "run ");
}

TEST_F(PrefetchedReadTest, HandsOnTheErrorOfTheCall) {
  Step();
  Step();
  Received();
  cluster_.worker().Set(&FakeScript::fail_next_run, 9);
  const StoragePtr loss = Forward();
  const absl::Status failed = ReadByte(*device_, kLane, loss);
  EXPECT_EQ(ErrorMetadataValue(failed, "error_id"), "9");
  EXPECT_EQ(Received(), "run read ");
}

TEST_F(PrefetchedReadTest, LargeValuesAreNotAskedForInAdvance) {
  const auto step = [&](bool read) {
    const StoragePtr large = device_->NewStorage(4096);
    ASSERT_TRUE(Record(*device_, kLane, MakeCall(1, {{large, kCreates}})).ok());
    if (read) {
      ASSERT_TRUE(ReadByte(*device_, kLane, large).ok());
    }
  };
  for (int i = 0; i < 3; ++i) step(true);
  Received();
  step(false);
  EXPECT_EQ(Received(), "run ");
}

TEST_F(PrefetchedReadTest, OneThatWaitsIsServedToo) {
  Step();
  Step();
  Received();
  const StoragePtr loss = Forward();
  EXPECT_EQ(Received(), "run read ");
  std::string value(4, '?');
  const auto read = device_->StartRead(
      kLane, loss.get(), WholeView(*loss.get()), value.data(), value.size());
  ASSERT_TRUE(read.ok());
  ASSERT_TRUE((*read)->Wait(absl::Seconds(60)).ok());
  EXPECT_EQ(value, cluster_.worker().contents(loss->id()));
  EXPECT_EQ(Received(), "");
}

}  // namespace
}  // namespace djinn
