// Turns text into the token ids that an uncased BERT model reads.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_TOKENIZER_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::examples {

// Splits text into words as BERT's tokenizer does: lower case, no accents, each
// punctuation mark and Chinese character as a word of its own. Bytes that are
// not UTF-8 are skipped.
std::vector<std::string> SplitIntoWords(absl::string_view text);

// Splits words into the pieces of a vocabulary, longest piece first. A piece
// that begins with "##" continues a word: "hugging" may become "hug" and
// "##ging". A word that the pieces do not cover, or that is longer than 100
// characters, becomes the token [UNK]. Special tokens written in the text are
// ordinary text.
//
// Thread-safe, because it is immutable.
class WordPieceTokenizer {
 public:
  // Takes the contents of a vocab.txt, one piece per line; a piece's id is its
  // line's number from 0. Returns InvalidArgument if a line is empty or
  // repeated or a special token is missing.
  static absl::StatusOr<WordPieceTokenizer> FromVocabulary(
      absl::string_view vocabulary);

  // Returns [CLS], the text's tokens, [SEP]: at most `max_tokens` (at least 2),
  // cut off at the end.
  std::vector<int64_t> Encode(absl::string_view text, size_t max_tokens) const;

  // Returns the number of ids; every id is below it.
  int64_t vocabulary_size() const { return vocabulary_size_; }

  // Returns the id that fills up the shorter sentences of a batch.
  int64_t padding_id() const { return padding_id_; }

 private:
  void AppendPieces(absl::string_view word, std::vector<int64_t>& ids) const;

  // Pieces that start a word, and pieces that continue one (without "##").
  absl::flat_hash_map<std::string, int64_t> starts_, continuations_;
  int64_t vocabulary_size_ = 0;
  int64_t padding_id_ = 0, unknown_id_ = 0, start_id_ = 0, end_id_ = 0;
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_TOKENIZER_H_
