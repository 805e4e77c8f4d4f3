#include "common/log/log.h"

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "common/log/audit.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::log {
namespace {

using ::testing::HasSubstr;

TEST(LogTest, FormatsEveryKindOfField) {
  EXPECT_EQ(FormatLine("info", "worker", "worker joined",
                       {{"id", "w0"},
                        {"runs", 3},
                        {"age", absl::Milliseconds(1500)},
                        {"error", absl::NotFoundError("gone")}}),
            "level=info role=worker msg=\"worker joined\" id=w0 runs=3 "
            "age=1.5s error=\"NOT_FOUND: gone\"");
}

TEST(LogTest, OneEventStaysOneLine) {
  EXPECT_EQ(
      FormatLine("error", "", "odd", {{"text", "a\nb=\"c\""}, {"none", ""}}),
      "level=error msg=odd text=\"a\\nb=\\\"c\\\"\" none=\"\"");
}

TEST(LogTest, ApostropheIsNotEscaped) {
  EXPECT_EQ(FormatLine("info", "", "a worker's \\'", {}),
            "level=info msg=\"a worker's \\\\'\"");
}

// Returns what a warning and an audit line leave in the log at this level.
std::string LoggedAt(Level level) {
  unsetenv("DJINN_LOG_LEVEL");
  Configure("coordinator", level);
  testing::internal::CaptureStderr();
  Warning("odd");
  Audit({{"who", "olga"}, {"result", "OK"}});
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, AuditLinesAreWrittenAtEveryLevelButOff) {
  for (const Level level :
       {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError}) {
    const std::string logged = LoggedAt(level);
    EXPECT_THAT(logged, HasSubstr("level=info role=coordinator msg=audit "
                                  "who=olga result=OK\n"));
    EXPECT_EQ(absl::StrContains(logged, "msg=odd"), level != Level::kError);
  }
  EXPECT_EQ(LoggedAt(Level::kOff), "");
  Configure("", Level::kInfo);
}

TEST(LogTest, SessionIdsAreShortened) {
  EXPECT_EQ(ShortId("0123456789abcdef"), "01234567");
  EXPECT_EQ(ShortId(""), "");
}

}  // namespace
}  // namespace djinn::log
