// Shows how alike sentences are, for people.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SIMILARITY_TABLE_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SIMILARITY_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace djinn::examples {

// Cosine of the angle between each two of the rows of `embeddings`, which has
// rows of length 1, `width` numbers each, one after the other. Returns a square
// matrix, row-major. `width` must divide the size of `embeddings`.
std::vector<float> CosineSimilarities(absl::Span<const float> embeddings,
                                      size_t width);

// Lists the numbered sentences, the matrix of their similarities, and for each
// sentence the one that is most like it. `similarities` is square, row-major,
// a row per sentence; above kMaxMatrixSentences it is too wide to read and is
// left out. Long sentences are shortened. Ends with a new line.
std::string FormatSimilarityTable(absl::Span<const std::string> sentences,
                                  absl::Span<const float> similarities);

inline constexpr size_t kMaxMatrixSentences = 16;

// The first `max_columns` characters of `text`, with "…" for the rest, control
// characters as spaces. Never cuts a UTF-8 character in two.
std::string Shortened(absl::string_view text, size_t max_columns);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SIMILARITY_TABLE_H_
