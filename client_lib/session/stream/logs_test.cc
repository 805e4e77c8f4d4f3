// Tests the logs that let a session resume after its stream broke.
#include "client_lib/session/stream/backoff.h"
#include "client_lib/session/stream/chunk_map.h"
#include "client_lib/session/stream/message_log.h"
#include "client_lib/session/stream/reply_log.h"
#include "common/base/random.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

void AppendRun(MessageLog* log, uint64_t bytes) {
  auto message = std::make_shared<v1::ControlRequest>();
  message->mutable_ordered()->mutable_run();
  log->Append(std::move(message), bytes, true);
}

void AppendFree(MessageLog* log) {
  auto message = std::make_shared<v1::ControlRequest>();
  message->mutable_ordered()->mutable_free();
  log->Append(std::move(message), 5, false);
}

// Sends the messages that have room, and returns their number.
int SendAll(MessageLog* log) {
  int sent = 0;
  while (log->Next() != nullptr && log->HasRoom(*log->Next())) {
    log->MarkSent();
    ++sent;
  }
  return sent;
}

v1::Window MakeWindow(uint64_t messages, uint64_t bytes) {
  v1::Window window;
  window.set_messages(messages);
  window.set_bytes(bytes);
  return window;
}

int Complete(MessageLog* log, uint64_t sequence) {
  int completed = 0;
  EXPECT_TRUE(log->Complete(sequence));
  while (log->TakeCompleted().has_value()) ++completed;
  return completed;
}

TEST(MessageLogTest, TheLastMessageMayGoBeyondTheBytes) {
  MessageLog log;
  log.SetWindow(MakeWindow(10, 100));
  for (int i = 0; i < 3; ++i) AppendRun(&log, 90);
  EXPECT_EQ(SendAll(&log), 2);
  log.GrowWindow(MakeWindow(10, 180));
  EXPECT_EQ(SendAll(&log), 0);
  log.GrowWindow(MakeWindow(5, 181));
  EXPECT_EQ(SendAll(&log), 1);
  EXPECT_EQ(log.window_messages(), 10u);
}

TEST(MessageLogTest, FreesTakeNoRoomButKeepTheirPlace) {
  MessageLog log;
  log.SetWindow(MakeWindow(1, 100));
  AppendFree(&log);
  AppendRun(&log, 10);
  AppendFree(&log);
  AppendRun(&log, 10);
  AppendFree(&log);
  EXPECT_EQ(SendAll(&log), 3);
  log.GrowWindow(MakeWindow(3, 100));
  EXPECT_EQ(SendAll(&log), 2);
}

TEST(MessageLogTest, ForgetsWhatIsCompletedOnce) {
  MessageLog log;
  for (int i = 0; i < 4; ++i) AppendRun(&log, 10);
  EXPECT_EQ(SendAll(&log), 4);
  EXPECT_EQ(Complete(&log, 2), 2);
  EXPECT_EQ(Complete(&log, 1), 0);
  EXPECT_EQ(log.outstanding(), 2u);
  EXPECT_EQ(log.outstanding_bytes(), 20u);
  AppendRun(&log, 10);
  // Message 5 was not sent yet.
  EXPECT_FALSE(log.Complete(5));
  EXPECT_EQ(Complete(&log, 4), 2);
  EXPECT_EQ(log.entries().size(), 1u);
}

TEST(MessageLogTest, SendsAgainWhatWasNotReceived) {
  MessageLog log;
  log.SetWindow(MakeWindow(4, 1000));
  for (int i = 0; i < 6; ++i) AppendRun(&log, 10);
  EXPECT_EQ(SendAll(&log), 4);
  Complete(&log, 1);
  EXPECT_FALSE(log.Rewind(0));
  EXPECT_FALSE(log.Rewind(5));
  ASSERT_TRUE(log.Rewind(2));
  EXPECT_EQ(log.Next()->sequence, 3u);
  EXPECT_EQ(SendAll(&log), 2);
  EXPECT_EQ(log.sent(), 4u);
}

TEST(ReplyLogTest, TakesEachReplyOnceAndNoGap) {
  ReplyLog log;
  EXPECT_EQ(log.Take(1, 10), ReplyLog::Arrival::kNew);
  EXPECT_EQ(log.Take(1, 10), ReplyLog::Arrival::kKnown);
  EXPECT_EQ(log.Take(3, 10), ReplyLog::Arrival::kGap);
  EXPECT_EQ(log.Take(0, 10), ReplyLog::Arrival::kNew);
  EXPECT_EQ(log.handled(), 1u);
}

TEST(ReplyLogTest, IsHandledUpToTheFirstThatIsHeld) {
  ReplyLog log;
  for (int i = 1; i <= 5; ++i) log.Take(i, 10);
  log.Hold(2);
  log.Hold(4);
  EXPECT_EQ(log.handled(), 1u);
  log.Release(4, 100);
  EXPECT_EQ(log.handled(), 1u);
  log.Release(2, 100);
  EXPECT_EQ(log.handled(), 5u);
}

TEST(ReplyLogTest, ManyRepliesOrBytesAreDue) {
  ReplyLog log;
  for (uint64_t i = 1; i < ReplyLog::kManyReplies; ++i) log.Take(i, 1);
  EXPECT_FALSE(log.Due());
  log.Take(ReplyLog::kManyReplies, 1);
  EXPECT_TRUE(log.Due());
  log.Acknowledged(log.handled());
  EXPECT_FALSE(log.Due());
  log.Take(ReplyLog::kManyReplies + 1, ReplyLog::kManyBytes + 1);
  EXPECT_TRUE(log.Due());
}

TEST(ChunkMapTest, TakesChunksInAnyOrderOnce) {
  ChunkMap chunks(2 * kBulkChunkBytes + 5);
  EXPECT_FALSE(chunks.Fits(1, kBulkChunkBytes));
  EXPECT_FALSE(chunks.Fits(0, kBulkChunkBytes - 1));
  EXPECT_FALSE(chunks.Fits(3 * kBulkChunkBytes, 5));
  EXPECT_FALSE(chunks.Fits(2 * kBulkChunkBytes, 6));
  EXPECT_TRUE(chunks.Fits(2 * kBulkChunkBytes, 5));
  EXPECT_TRUE(chunks.Take(2 * kBulkChunkBytes));
  EXPECT_FALSE(chunks.Take(2 * kBulkChunkBytes));
  EXPECT_TRUE(chunks.Take(0));
  EXPECT_TRUE(chunks.Take(kBulkChunkBytes));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(chunks.complete());
    chunks.Copied();
  }
  EXPECT_TRUE(chunks.complete());
}

TEST(BackoffTest, PausesGrowUpToABound) {
  FakeRandomSource random;
  Backoff backoff(&random);
  absl::Duration whole = Backoff::kFirst;
  for (int i = 0; i < 10; ++i) {
    const absl::Duration pause = backoff.Next();
    EXPECT_GE(pause, whole / 2);
    EXPECT_LE(pause, whole);
    whole = std::min(whole * 2, Backoff::kLongest);
  }
}

}  // namespace
}  // namespace djinn
