#include "client_lib/session/device/answers/answers.h"

#include <memory>
#include <string>
#include <thread>

#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

class AnswersTest : public testing::Test {
 protected:
  AnswersTest() { options_.clock = &clock_; }

  // Registers a read of `value_` whose bytes come on Bulk.
  std::shared_ptr<ReadWait> RegisterRead() {
    auto wait = std::make_shared<ReadWait>(value_.data(), value_.size());
    EncodedMessage message;
    message.request = std::make_shared<v1::ControlRequest>();
    message.request->mutable_ordered()->set_sequence(1);
    message.request->mutable_ordered()->mutable_read()->set_transfer_id(
        kTransfer);
    message.registration = wait;
    MutexLock lock(&answers_.mu);
    answers_.table.Register(&message);
    return wait;
  }
  absl::StatusOr<std::shared_ptr<ReadWait>> TakeChunk(uint64_t offset,
                                                      absl::string_view bytes,
                                                      bool* copies) {
    return answers_.TakeChunk(kTransfer, offset, {bytes}, copies);
  }

  static constexpr uint64_t kTransfer = 7;

  FakeClock clock_;
  SessionOptions options_;
  AnswerReceiver receiver_;
  Answers answers_{&options_, &receiver_};
  std::string value_ = "????????";
  const absl::Status lost_ =
      MakeError(absl::StatusCode::kUnavailable, "WORKER_LOST", "gone");
};

TEST_F(AnswersTest, WaitForAnAnswerThatIsHereReturnsAtOnce) {
  options_.operation_timeout = absl::ZeroDuration();
  Waiter waiter;
  MutexLock lock(&answers_.mu);
  EXPECT_TRUE(answers_.Await(&waiter, [] { return true; }).ok());
  EXPECT_TRUE(answers_.waiters.empty());
}

TEST_F(AnswersTest, TimeoutRestartsAsLongAsSomethingMoves) {
  options_.operation_timeout = absl::ZeroDuration();
  Waiter waiter;
  int checks = 0;
  MutexLock lock(&answers_.mu);
  const absl::Status status = answers_.Await(
      &waiter, [] { return false; }, [&] { return ++checks < 4; });
  EXPECT_EQ(ErrorReason(status), "OPERATION_TIMEOUT");
  EXPECT_EQ(checks, 4);
  EXPECT_TRUE(answers_.waiters.empty());
}

TEST_F(AnswersTest, TimeoutRestartsWhileARecoveryMakesProgress) {
  options_.operation_timeout = absl::ZeroDuration();
  const std::shared_ptr<ReadWait> read = RegisterRead();
  Waiter waiter;
  MutexLock lock(&answers_.mu);
  for (const bool replays : {false, true}) {
    answers_.replays = replays;
    int checks = 0;
    const auto moved = [&] {
      if (++checks < 4) answers_.NoteReplayed();
      return false;
    };
    const absl::Status status =
        answers_.Await(&waiter, [] { return false; }, moved);
    EXPECT_EQ(ErrorReason(status), "OPERATION_TIMEOUT");
    EXPECT_EQ(checks, replays ? 4 : 1);
  }
  EXPECT_EQ(ErrorReason(answers_.AwaitRead(read.get(), absl::Hours(1))),
            "OPERATION_TIMEOUT");
}

TEST_F(AnswersTest, FailureEndsAWaitAndTheFirstOneCounts) {
  Waiter waiter;
  absl::Status status;
  std::thread thread([&] {
    MutexLock lock(&answers_.mu);
    status = answers_.Await(&waiter, [] { return false; });
  });
  answers_.Fail(lost_);
  thread.join();
  EXPECT_EQ(status, lost_);
  answers_.Fail(absl::InternalError("later"));
  MutexLock lock(&answers_.mu);
  EXPECT_EQ(answers_.Await(&waiter, [] { return false; }), lost_);
}

TEST_F(AnswersTest, CallbackThatAwaitsAReadKeepsThreadsFromLeading) {
  const std::shared_ptr<ReadWait> wait = RegisterRead();
  bool called = false;
  {
    MutexLock lock(&answers_.mu);
    EXPECT_TRUE(answers_.may_lead());
    answers_.table.reads().Watch(wait.get(), [&] { called = true; });
    EXPECT_FALSE(answers_.may_lead());
  }
  EXPECT_TRUE(answers_.TakeDue().empty());
  answers_.Fail(lost_);
  const ReadTable::Callbacks due = answers_.TakeDue();
  ASSERT_EQ(due.size(), 1);
  EXPECT_FALSE(called);
  due[0]();
  EXPECT_TRUE(called);
  MutexLock lock(&answers_.mu);
  EXPECT_TRUE(answers_.may_lead());
}

TEST_F(AnswersTest, ReadThatIsStillPendingSaysSo) {
  const std::shared_ptr<ReadWait> wait = RegisterRead();
  MutexLock lock(&answers_.mu);
  EXPECT_EQ(ErrorReason(answers_.AwaitRead(wait.get(), absl::ZeroDuration())),
            "VALUE_PENDING");
  wait->done = true;
  EXPECT_TRUE(answers_.AwaitRead(wait.get(), absl::ZeroDuration()).ok());
}

TEST_F(AnswersTest, ChunkIsCopiedOnce) {
  const std::shared_ptr<ReadWait> wait = RegisterRead();
  bool copies = false;
  auto taken = TakeChunk(0, "12345678", &copies);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(*taken, wait);
  EXPECT_TRUE(copies);
  EXPECT_EQ(value_, "12345678");
  copies = false;
  taken = TakeChunk(0, "abcdefgh", &copies);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(*taken, nullptr);
  EXPECT_FALSE(copies);
  EXPECT_EQ(value_, "12345678");
}

TEST_F(AnswersTest, ChunkOfAnAbandonedReadLeavesTheDestinationAlone) {
  const std::shared_ptr<ReadWait> wait = RegisterRead();
  {
    MutexLock lock(&answers_.mu);
    answers_.Abandon(wait.get());
  }
  bool copies = false;
  const auto taken = TakeChunk(0, "12345678", &copies);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(*taken, wait);
  EXPECT_FALSE(copies);
  EXPECT_EQ(value_, "????????");
}

TEST_F(AnswersTest, ChunkBesideTheValueIsABreachOfTheProtocol) {
  bool copies = false;
  // No read has this transfer.
  EXPECT_EQ(*TakeChunk(0, "12345678", &copies), nullptr);
  RegisterRead();
  for (const absl::string_view bytes : {"1234", "123456789"}) {
    EXPECT_EQ(ErrorReason(TakeChunk(0, bytes, &copies).status()),
              kProtocolViolation);
  }
  EXPECT_FALSE(copies);
}

}  // namespace
}  // namespace djinn
