// Turns text into the token ids that a BERT model reads.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_WORDPIECE_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_WORDPIECE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::examples {

// Splits words into the pieces of a vocabulary, longest piece first: with
// "hug" and "##ging" in it, "hugging" becomes these two. A word that cannot be
// put together from pieces becomes the one token [UNK].
//
// "[CLS]", "[SEP]" and their like are added by the tokenizer and are never
// recognised in the text: a sentence that has "[SEP]" written in it is a
// sentence with brackets, and cannot pretend to be two.
//
// Immutable, so safe to share between threads.
class WordPieceTokenizer {
 public:
  // Longest word, in characters, that is looked at; a longer one is [UNK].
  static constexpr size_t kMaxWordCharacters = 100;

  // Takes the contents of a vocab.txt: one piece per line, its id is the
  // line's number from 0. InvalidArgument if a line is empty or repeated or a
  // special token is missing.
  static absl::StatusOr<WordPieceTokenizer> FromVocabulary(
      absl::string_view vocabulary);

  // Returns [CLS], the text's tokens, [SEP]: at most `max_tokens` (at least 2)
  // in all; what does not fit is cut off at the end.
  std::vector<int64_t> Encode(absl::string_view text, size_t max_tokens) const;

  // Number of ids: every id is below it.
  int64_t vocabulary_size() const { return vocabulary_size_; }

  // Fills up the shorter sentences of a batch; the model is told to ignore it.
  int64_t padding_id() const { return padding_id_; }

 private:
  WordPieceTokenizer() = default;

  // Appends the pieces of `word` to `ids`.
  void AppendPieces(absl::string_view word, std::vector<int64_t>& ids) const;

  // Pieces that start a word, and pieces that continue one (without "##").
  absl::flat_hash_map<std::string, int64_t> starts_;
  absl::flat_hash_map<std::string, int64_t> continuations_;
  int64_t vocabulary_size_ = 0;
  int64_t padding_id_ = 0;
  int64_t unknown_id_ = 0;
  int64_t start_id_ = 0;  // [CLS]
  int64_t end_id_ = 0;    // [SEP]
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_WORDPIECE_H_
