#include "gpu_worker/supervisor/executor_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ExecutorLogTest : public testing::Test {
 protected:
  ExecutorLogTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    log_ = ExecutorLog(Descriptor(ends[0]));
    theirs_ = Descriptor(ends[1]);
  }
  void Write(const std::string& text) {
    EXPECT_EQ(write(theirs_.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }

  ExecutorLog log_;
  Descriptor theirs_;
};

TEST_F(ExecutorLogTest, LinesComeWhenTheyHaveEnded) {
  EXPECT_GE(log_.polled(), 0);
  Write("one\ntw");
  EXPECT_THAT(log_.Take(), ElementsAre("one"));
  EXPECT_THAT(log_.Take(), IsEmpty());
  Write("o\n\nthree\n");
  EXPECT_THAT(log_.Take(), ElementsAre("two", "three"));
}

TEST_F(ExecutorLogTest, LongLineIsCut) {
  Write(std::string(ExecutorLog::kMaxLineBytes + 1, 'x') + "\nnext\n");
  const auto lines = log_.Take();
  EXPECT_THAT(lines,
              ElementsAre(SizeIs(ExecutorLog::kMaxLineBytes), "x", "next"));
}

TEST_F(ExecutorLogTest, FloodWaitsForTheAllowance) {
  std::string flood;
  for (int i = 0; i < 2 * ExecutorLog::kBurst; ++i) flood += "x\n";
  Write(flood);
  EXPECT_THAT(log_.Take(), SizeIs(ExecutorLog::kBurst));
  EXPECT_EQ(log_.polled(), -1);
  EXPECT_THAT(log_.Take(), IsEmpty());
  log_.Age(absl::Seconds(2));
  EXPECT_TRUE(log_.waits());
  EXPECT_THAT(log_.Take(), SizeIs(2 * ExecutorLog::kLinesPerSecond));
  log_.Age(absl::Hours(1));
  EXPECT_THAT(log_.Take(), Not(IsEmpty()));
}

TEST_F(ExecutorLogTest, EmptyAndLongLinesCountToo) {
  std::string flood(2 * ExecutorLog::kBurst, '\n');
  Write(flood);
  EXPECT_THAT(log_.Take(), IsEmpty());
  EXPECT_EQ(log_.polled(), -1);
  log_.Age(absl::Hours(1));
  EXPECT_THAT(log_.Take(), IsEmpty());
  log_.Age(absl::Hours(1));
  const std::string line(ExecutorLog::kMaxLineBytes - 1, 'x');
  size_t taken = 0;
  for (int i = 0; i < ExecutorLog::kBurst; ++i) {
    if (write(theirs_.get(), (line + "\n").data(), line.size() + 1) < 0) break;
    taken += log_.Take().size();
  }
  // Each counts for 4 lines.
  EXPECT_EQ(taken, ExecutorLog::kBurst / 4);
}

TEST_F(ExecutorLogTest, LastWordsComeWithoutAnEndAndBeyondTheAllowance) {
  std::string flood;
  for (int i = 0; i < ExecutorLog::kBurst; ++i) flood += "x\n";
  Write(flood + "terminate called\nfor no reason");
  EXPECT_THAT(log_.Take(), SizeIs(ExecutorLog::kBurst));
  EXPECT_THAT(log_.TakeLast(),
              ElementsAre("terminate called", "for no reason"));
  EXPECT_EQ(log_.polled(), -1);
}

TEST_F(ExecutorLogTest, ClosedPipeIsPolledNoMore) {
  Write("last\n");
  theirs_ = Descriptor();
  EXPECT_THAT(log_.Take(), ElementsAre("last"));
  EXPECT_EQ(log_.polled(), -1);
  EXPECT_THAT(log_.TakeLast(), IsEmpty());
}

TEST_F(ExecutorLogTest, ExecutorCannotReadOrEmptyItsLog) {
  Write("line\n");
  char byte;
  EXPECT_LT(read(theirs_.get(), &byte, 1), 0);
  EXPECT_LT(ftruncate(theirs_.get(), 0), 0);
  EXPECT_LT(lseek(theirs_.get(), 0, SEEK_SET), 0);
  EXPECT_LT(shutdown(theirs_.get(), SHUT_RDWR), 0);
  fcntl(theirs_.get(), F_SETFL, 0);
  EXPECT_THAT(log_.Take(), ElementsAre("line"));
  // Does not block.
  EXPECT_THAT(log_.Take(), IsEmpty());
}

TEST(ExecutorLogHeadTest, LevelIsTheLines) {
  absl::string_view line =
      "ts=2026-01-31T12:00:00.000Z level=error role=executor msg=\"a b\" k=v";
  EXPECT_EQ(ConsumeHead(&line), "error");
  EXPECT_EQ(line, "msg=\"a b\" k=v");
}

TEST(ExecutorLogHeadTest, OtherLinesAreWarnings) {
  for (const absl::string_view text :
       {"terminate called", "ts=", "ts=2026-01-31T12:00:00.000Z level=error",
        "ts=2026-01-31T12:00:00.000Z level=off role=executor msg=x",
        "ts=2026-01-31T12:00:00.000Z level=error role=worker msg=x"}) {
    absl::string_view line = text;
    EXPECT_EQ(ConsumeHead(&line), "warning") << text;
    EXPECT_EQ(line, text);
  }
}

class LoggedExecutorTest : public SupervisorTest {
 protected:
  LoggedExecutorTest() {
    Step();
    Lease("evil", "e1");
    executor(0).SayReady();
    Step();
  }
  void Write(const std::string& text) {
    EXPECT_GT(write(launcher_.logs[0].get(), text.data(), text.size()), 0);
  }
};

TEST_F(LoggedExecutorTest, LineIsItsTenantsWhateverItSays) {
  testing::internal::CaptureStderr();
  Write(
      "ts=2026-01-31T12:00:00.000Z level=info role=worker msg=\"executor "
      "ended\" tenant=good\n\" tenant=good\r\x1b[2J\n");
  Step();
  const std::string written = testing::internal::GetCapturedStderr();
  size_t lines = 0;
  const std::vector<std::string> split = absl::StrSplit(written, '\n');
  for (const std::string& line : split) {
    if (!absl::StrContains(line, "good")) continue;
    ++lines;
    EXPECT_THAT(line, StartsWith("ts="));
    EXPECT_THAT(line, HasSubstr("msg=\"executor wrote\" tenant=evil number=1 "
                                "line=\""));
    EXPECT_THAT(line, Not(HasSubstr("\x1b")));
    EXPECT_THAT(line, Not(HasSubstr("\r")));
  }
  EXPECT_EQ(lines, 2u);
  EXPECT_THAT(written, HasSubstr("\\\" tenant=good"));
}

TEST_F(LoggedExecutorTest, LastWordsAreLoggedBeforeTheEnd) {
  testing::internal::CaptureStderr();
  Write("terminate called");
  executor(0).Die();
  Step();
  const std::string written = testing::internal::GetCapturedStderr();
  const size_t words = written.find("line=\"terminate called\"");
  EXPECT_NE(words, written.npos) << written;
  EXPECT_LT(words, written.find("msg=\"executor ended\""));
}

}  // namespace
}  // namespace djinn::worker
