#include "client_lib/examples/sentence_similarity/basic_tokenizer.h"

#include <string>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SplitIntoWordsTest, NothingGivesNothing) {
  EXPECT_THAT(SplitIntoWords(""), IsEmpty());
  EXPECT_THAT(SplitIntoWords(" \t\r\n\u00a0\u3000"), IsEmpty());
}

TEST(SplitIntoWordsTest, AnyWhiteSpaceSeparates) {
  EXPECT_THAT(SplitIntoWords("a b\tc\nd\u00a0e\u2003f\u2028g"),
              ElementsAre("a", "b", "c", "d", "e", "f", "g"));
}

TEST(SplitIntoWordsTest, LettersLoseCaseAndAccents) {
  EXPECT_THAT(SplitIntoWords("CAFÉ Ångström İO ΌΔΟΣ Ёлка"),
              ElementsAre("cafe", "angstrom", "io", "οδοσ", "елка"));
}

TEST(SplitIntoWordsTest, AccentsWrittenApartAreTheSame) {
  EXPECT_EQ(SplitIntoWords("e\u0301clair"), SplitIntoWords("\u00e9clair"));
}

TEST(SplitIntoWordsTest, PunctuationStandsAlone) {
  EXPECT_THAT(SplitIntoWords("don't $5.00 …¿a_b?"),
              ElementsAre("don", "'", "t", "$", "5", ".", "00", "…", "¿", "a",
                          "_", "b", "?"));
}

TEST(SplitIntoWordsTest, SymbolsBeyondAsciiAreNotPunctuation) {
  EXPECT_THAT(SplitIntoWords("1€ x≈y 🙂🙂"), ElementsAre("1€", "x≈y", "🙂🙂"));
}

TEST(SplitIntoWordsTest, ChineseCharactersStandAlone) {
  EXPECT_THAT(SplitIntoWords("ab北京cd\U00020000"),
              ElementsAre("ab", "北", "京", "cd", "\U00020000"));
}

TEST(SplitIntoWordsTest, KanaStayTogetherAndLoseTheirMarks) {
  EXPECT_THAT(SplitIntoWords("ガタ"), ElementsAre("カタ"));
}

TEST(SplitIntoWordsTest, HangulFallsApartIntoItsLetters) {
  // One syllable, three letters of three bytes each.
  EXPECT_THAT(SplitIntoWords("한"), ElementsAre("\u1112\u1161\u11ab"));
}

TEST(SplitIntoWordsTest, InvisibleCharactersAreDropped) {
  EXPECT_THAT(SplitIntoWords(absl::string_view(
                  "a\0b\u200bc\u00add\ufeffe\ufffdf\ue000g\x7fh", 24)),
              ElementsAre("abcdefgh"));
}

TEST(SplitIntoWordsTest, BytesThatAreNotUtf8AreDropped) {
  EXPECT_THAT(SplitIntoWords("a\xff\xc3(b\xe4\xba"),
              ElementsAre("a", "(", "b"));
  // A surrogate, an overlong slash, a number beyond Unicode.
  EXPECT_THAT(SplitIntoWords("a\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80z"),
              ElementsAre("az"));
}

}  // namespace
}  // namespace djinn::examples
