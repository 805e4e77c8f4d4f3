#include "common/log/log.h"

#include "gtest/gtest.h"

namespace djinn::log {
namespace {

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

TEST(LogTest, SessionIdsAreShortened) {
  EXPECT_EQ(ShortId("0123456789abcdef"), "01234567");
  EXPECT_EQ(ShortId(""), "");
}

}  // namespace
}  // namespace djinn::log
