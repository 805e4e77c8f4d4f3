#include "client_lib/examples/sentence_similarity/wordpiece.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/examples/sentence_similarity/basic_tokenizer.h"

namespace djinn::examples {
namespace {

constexpr absl::string_view kContinuationPrefix = "##";

// Whether a character of valid UTF-8 starts with this byte.
bool StartsCharacter(char byte) { return (byte & 0xC0) != 0x80; }

}  // namespace

absl::StatusOr<WordPieceTokenizer> WordPieceTokenizer::FromVocabulary(
    absl::string_view vocabulary) {
  WordPieceTokenizer tokenizer;
  absl::ConsumeSuffix(&vocabulary, "\n");
  int64_t id = 0;
  for (absl::string_view line : absl::StrSplit(vocabulary, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    absl::string_view piece = line;
    // A lone "##" is the word "##", not an empty continuation.
    const bool continues = piece.size() > kContinuationPrefix.size() &&
                           absl::ConsumePrefix(&piece, kContinuationPrefix);
    if (piece.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: line ", id + 1, " is empty"));
    }
    auto& pieces = continues ? tokenizer.continuations_ : tokenizer.starts_;
    if (!pieces.emplace(piece, id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: line ", id + 1, " repeats \"", line, "\""));
    }
    ++id;
  }
  tokenizer.vocabulary_size_ = id;

  const std::pair<absl::string_view, int64_t*> special_tokens[] = {
      {"[PAD]", &tokenizer.padding_id_},
      {"[UNK]", &tokenizer.unknown_id_},
      {"[CLS]", &tokenizer.start_id_},
      {"[SEP]", &tokenizer.end_id_},
  };
  for (const auto& [token, destination] : special_tokens) {
    const auto found = tokenizer.starts_.find(token);
    if (found == tokenizer.starts_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocabulary: ", token, " is missing"));
    }
    *destination = found->second;
  }
  return tokenizer;
}

std::vector<int64_t> WordPieceTokenizer::Encode(absl::string_view text,
                                                size_t max_tokens) const {
  max_tokens = std::max<size_t>(max_tokens, 2);
  std::vector<int64_t> ids = {start_id_};
  for (const std::string& word : SplitIntoWords(text)) {
    if (ids.size() >= max_tokens) break;
    AppendPieces(word, ids);
  }
  ids.resize(std::min(ids.size(), max_tokens - 1));
  ids.push_back(end_id_);
  return ids;
}

void WordPieceTokenizer::AppendPieces(absl::string_view word,
                                      std::vector<int64_t>& ids) const {
  const size_t characters =
      std::count_if(word.begin(), word.end(), StartsCharacter);
  if (characters > kMaxWordCharacters) {
    ids.push_back(unknown_id_);
    return;
  }
  const size_t ids_before = ids.size();
  const auto* pieces = &starts_;
  while (!word.empty()) {
    size_t length = word.size();
    auto found = pieces->find(word);
    while (found == pieces->end() && length > 1) {
      // One character less.
      do {
        --length;
      } while (length > 0 && !StartsCharacter(word[length]));
      found = pieces->find(word.substr(0, length));
    }
    if (found == pieces->end()) {
      ids.resize(ids_before);
      ids.push_back(unknown_id_);
      return;
    }
    ids.push_back(found->second);
    word.remove_prefix(length);
    pieces = &continuations_;
  }
}

}  // namespace djinn::examples
