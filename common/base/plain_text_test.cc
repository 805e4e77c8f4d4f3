#include "common/base/plain_text.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

std::string Plain(bool keep_lines, std::string text) {
  ReplaceControls(keep_lines, &text);
  return text;
}

TEST(PlainTextTest, ControlsBecomeSpaces) {
  EXPECT_EQ(Plain(false, "w\x1b[2J\r\n0\x7f"), "w [2J  0 ");
  EXPECT_EQ(Plain(true, "a\nb\tc"), "a\nb c");
  // A control character of Unicode, and a letter.
  EXPECT_EQ(Plain(false, "\xc2\x9b\xc3\xa9"), " \xc3\xa9");
  // The beginning of a character that is missing.
  EXPECT_EQ(Plain(false, "x\xc2"), "x\xc2");
}

TEST(PlainTextTest, CutLeavesNoPartOfACharacter) {
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut("abc", 2), "ab");
  EXPECT_EQ(Cut("ab\xc3\xa9", 4), "ab\xc3\xa9");
  EXPECT_EQ(Cut("ab\xc3\xa9", 3), "ab");
  EXPECT_EQ(Cut("\xe2\x82\xac!", 3), "\xe2\x82\xac");
  EXPECT_EQ(Cut("\xe2\x82\xac!", 2), "");
  EXPECT_EQ(Cut("abc", 0), "");
}

TEST(PlainTextTest, OnlyShortestFormsOfCharactersAreUtf8) {
  for (const absl::string_view text :
       {"", "w0", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << absl::CEscape(text);
  }
  for (const absl::string_view text :
       {"\xff", "a\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << absl::CEscape(text);
  }
}

}  // namespace
}  // namespace djinn
