#include "client_lib/examples/sentence_similarity/wordpiece.h"

#include <string>

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
  auto tokenizer = WordPieceTokenizer::FromVocabulary(kVocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
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

TEST(WordPieceTest, BareContinuationMarkIsAWordOfItsOwn) {
  EXPECT_EQ(Tokenizer().vocabulary_size(), 16);
  // "#" is punctuation, so "##" never reaches the vocabulary as one word.
  EXPECT_THAT(Tokenizer().Encode("##", 16), ElementsAre(2, 1, 1, 3));
}

TEST(WordPieceTest, VocabularyMayComeFromWindows) {
  auto tokenizer = WordPieceTokenizer::FromVocabulary(
      "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nhug\r\n");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("hug", 16), ElementsAre(2, 4, 3));
}

TEST(WordPieceTest, BadVocabularyIsRefusedWithTheReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1 is empty"},
      {"[PAD]\n\n[UNK]", "line 2 is empty"},
      {"[PAD]\n[UNK]\n[CLS]\n", "[SEP] is missing"},
      {"a\n##a\nb\n##a", "line 4 repeats \"##a\""},
      {"a\na", "line 2 repeats \"a\""},
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
