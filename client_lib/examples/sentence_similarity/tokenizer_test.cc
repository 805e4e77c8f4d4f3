#include "client_lib/examples/sentence_similarity/tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Ids are the places in this list.
constexpr absl::string_view kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"  // 0 to 3
    "hug\n##ging\n##g\n##s\n"       // 4 to 7
    "h\nu\n[\n]\n"                  // 8 to 11
    "sep\n京\n##\nhugs\n";          // 12 to 15

WordPieceTokenizer Tokenizer() {
  return WordPieceTokenizer::FromVocabulary(kVocabulary).value();
}

TEST(SplitIntoWordsTest, WordsAreThoseOfBert) {
  const std::pair<absl::string_view, std::vector<std::string>> cases[] = {
      {"", {}},
      {" \t\r\n\u00a0\u3000", {}},
      {"a b\tc\nd\u00a0e\u2003f\u2028g", {"a", "b", "c", "d", "e", "f", "g"}},
      {"CAFÉ Ångström İO ΌΔΟΣ Ёлка",
       {"cafe", "angstrom", "io", "οδοσ", "елка"}},
      {"e\u0301clair", {"eclair"}},
      {"don't $5.00 …¿a_b?",
       {"don", "'", "t", "$", "5", ".", "00", "…", "¿", "a", "_", "b", "?"}},
      // Symbols beyond ASCII are not punctuation.
      {"1€ x≈y 🙂🙂", {"1€", "x≈y", "🙂🙂"}},
      {"ab北京cd\U00020000", {"ab", "北", "京", "cd", "\U00020000"}},
      {"ガタ", {"カタ"}},
      // One syllable, three letters of three bytes each.
      {"한", {"\u1112\u1161\u11ab"}},
      {absl::string_view("a\0b\u200bc\u00add\ufeffe\ufffdf\ue000g\x7fh", 24),
       {"abcdefgh"}},
      // Not UTF-8; a surrogate, an overlong slash, a number beyond Unicode.
      {"a\xff\xc3(b\xe4\xba", {"a", "(", "b"}},
      {"a\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80z", {"az"}},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_EQ(SplitIntoWords(text), words) << text;
  }
}

TEST(WordPieceTest, SurroundsTheTextWithStartAndEnd) {
  EXPECT_THAT(Tokenizer().Encode("", 16), ElementsAre(2, 3));
  EXPECT_THAT(Tokenizer().Encode("Hug hug", 16), ElementsAre(2, 4, 4, 3));
}

TEST(WordPieceTest, TakesTheLongestPieceFirst) {
  EXPECT_THAT(Tokenizer().Encode("hugging hugs huggs", 16),
              ElementsAre(2, 4, 5, 15, 4, 6, 7, 3));
}

TEST(WordPieceTest, WordThatDoesNotComeOutEvenIsUnknownAsAWhole) {
  EXPECT_THAT(Tokenizer().Encode("hugx hug 京x 東", 16),
              ElementsAre(2, 1, 4, 13, 1, 1, 3));
}

TEST(WordPieceTest, WordLongerThanTheLimitIsUnknown) {
  const std::string longest = "hug" + std::string(97, 's');
  EXPECT_THAT(Tokenizer().Encode(longest, 256), SizeIs(2 + 97));
  EXPECT_THAT(Tokenizer().Encode(longest + "s", 256), ElementsAre(2, 1, 3));
}

TEST(WordPieceTest, CutsOffWhatDoesNotFit) {
  EXPECT_THAT(Tokenizer().Encode("hug hugging hug", 4),
              ElementsAre(2, 4, 4, 3));
  EXPECT_THAT(Tokenizer().Encode("hug", 3), ElementsAre(2, 4, 3));
  EXPECT_THAT(Tokenizer().Encode("hug", 2), ElementsAre(2, 3));
  EXPECT_THAT(Tokenizer().Encode("hug", 0), ElementsAre(2, 3));
}

TEST(WordPieceTest, SpecialTokensWrittenInTheTextAreText) {
  EXPECT_THAT(Tokenizer().Encode("[SEP]", 16), ElementsAre(2, 10, 12, 11, 3));
}

TEST(WordPieceTest, VocabularyMayComeFromWindows) {
  auto tokenizer = WordPieceTokenizer::FromVocabulary(
      "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nhug\r\n");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("hug", 16), ElementsAre(2, 4, 3));
}

TEST(WordPieceTest, BadVocabularyIsRefusedWithTheReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty or repeated: \"\""},
      {"[PAD]\n\n[UNK]", "empty or repeated: \"\""},
      {"[PAD]\n[UNK]\n[CLS]\n", "[SEP] is missing"},
      {"a\n##a\nb\n##a", "empty or repeated: \"a\", id 4"},
      {"a\na", "empty or repeated: \"a\", id 2"},
  };
  for (const auto& [vocabulary, complaint] : cases) {
    SCOPED_TRACE(complaint);
    const absl::Status status =
        WordPieceTokenizer::FromVocabulary(vocabulary).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
  }
}

}  // namespace
}  // namespace djinn::examples
