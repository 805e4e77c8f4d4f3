#include "client_lib/examples/sentence_similarity/similarity_table.h"

#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace djinn::examples {
namespace {

constexpr size_t kSentenceColumns = 60;

// The row of the sentence most like sentence `row`, other than itself.
size_t MostAlike(absl::Span<const float> similarities, size_t count,
                 size_t row) {
  size_t best = row == 0 ? 1 : 0;
  for (size_t other = 0; other < count; ++other) {
    if (other == row) continue;
    if (similarities[row * count + other] > similarities[row * count + best]) {
      best = other;
    }
  }
  return best;
}

}  // namespace

std::vector<float> CosineSimilarities(absl::Span<const float> embeddings,
                                      size_t width) {
  const size_t count = width == 0 ? 0 : embeddings.size() / width;
  std::vector<float> similarities(count * count);
  for (size_t row = 0; row < count; ++row) {
    const auto a = embeddings.subspan(row * width, width);
    for (size_t column = row; column < count; ++column) {
      const auto b = embeddings.subspan(column * width, width);
      const float cosine = static_cast<float>(
          std::inner_product(a.begin(), a.end(), b.begin(), 0.0));
      similarities[row * count + column] = cosine;
      similarities[column * count + row] = cosine;
    }
  }
  return similarities;
}

std::string Shortened(absl::string_view text, size_t max_columns) {
  std::string result;
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (text[i] & 0xC0) != 0x80;
    if (starts_character && columns++ == max_columns) {
      return absl::StrCat(result, "…");
    }
    result.push_back(absl::ascii_iscntrl(text[i]) ? ' ' : text[i]);
  }
  return result;
}

std::string FormatSimilarityTable(absl::Span<const std::string> sentences,
                                  absl::Span<const float> similarities) {
  const size_t count = sentences.size();
  std::string table;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppendFormat(&table, "%4d  %s\n", i + 1,
                          Shortened(sentences[i], kSentenceColumns));
  }
  if (count < 2) return table;

  if (count <= kMaxMatrixSentences) {
    table += "\n    ";
    for (size_t column = 0; column < count; ++column) {
      absl::StrAppendFormat(&table, " %6d", column + 1);
    }
    table += "\n";
    for (size_t row = 0; row < count; ++row) {
      absl::StrAppendFormat(&table, "%4d", row + 1);
      for (size_t column = 0; column < count; ++column) {
        absl::StrAppendFormat(&table, " %6.3f",
                              similarities[row * count + column]);
      }
      table += "\n";
    }
  }

  table += "\nMost alike:\n";
  for (size_t row = 0; row < count; ++row) {
    const size_t other = MostAlike(similarities, count, row);
    absl::StrAppendFormat(&table, "%4d and %d: %.3f\n", row + 1, other + 1,
                          similarities[row * count + other]);
  }
  return table;
}

}  // namespace djinn::examples
