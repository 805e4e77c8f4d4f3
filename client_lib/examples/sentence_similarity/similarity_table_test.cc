#include "client_lib/examples/sentence_similarity/similarity_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CosineSimilaritiesTest, ComparesEachTwoRows) {
  const std::vector<float> rows = {1, 0, 0, 1, 0.6f, 0.8f};
  EXPECT_THAT(CosineSimilarities(rows, 2),
              ElementsAre(1, 0, 0.6f, 0, 1, 0.8f, 0.6f, 0.8f, 1));
  EXPECT_THAT(CosineSimilarities({}, 2), IsEmpty());
}

TEST(FormatSimilarityTableTest, ShowsSentencesMatrixAndBestMatches) {
  EXPECT_EQ(
      FormatSimilarityTable({"first", "second", "third"}, {1, 0, 0.6f,   //
                                                           0, 1, -0.8f,  //
                                                           0.6f, -0.8f, 1}),
      "   1  first\n"
      "   2  second\n"
      "   3  third\n"
      "\n"
      "          1      2      3\n"
      "   1  1.000  0.000  0.600\n"
      "   2  0.000  1.000 -0.800\n"
      "   3  0.600 -0.800  1.000\n"
      "\n"
      "Most alike:\n"
      "   1 and 3: 0.600\n"
      "   2 and 1: 0.000\n"
      "   3 and 1: 0.600\n");
}

TEST(FormatSimilarityTableTest, OneSentenceHasNothingToCompareWith) {
  EXPECT_EQ(FormatSimilarityTable({"alone"}, {1}), "   1  alone\n");
  EXPECT_EQ(FormatSimilarityTable({}, {}), "");
}

TEST(FormatSimilarityTableTest, LeavesOutAMatrixTooWideToRead) {
  const size_t count = kMaxMatrixSentences + 1;
  const std::vector<std::string> sentences(count, "same");
  const std::vector<float> similarities(count * count, 0.5f);
  const std::string table = FormatSimilarityTable(sentences, similarities);
  EXPECT_THAT(table, Not(HasSubstr("0.500  0.500")));
  EXPECT_THAT(table, HasSubstr("17 and 1: 0.500\n"));
}

TEST(ShortenedTest, KeepsWholeCharacters) {
  EXPECT_EQ(Shortened("short", 5), "short");
  EXPECT_EQ(Shortened("longer", 5), "longe…");
  EXPECT_EQ(Shortened("日本語", 3), "日本語");
  EXPECT_EQ(Shortened("日本語", 2), "日本…");
  EXPECT_EQ(Shortened("a\tb\nc\x1b[1m", 20), "a b c [1m");
}

}  // namespace
}  // namespace djinn::examples
