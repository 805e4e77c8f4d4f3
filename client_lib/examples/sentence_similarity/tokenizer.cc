#include "client_lib/examples/sentence_similarity/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace djinn::examples {
namespace {

constexpr size_t kMaxWordCharacters = 100;
constexpr absl::string_view kContinuationPrefix = "##";

bool IsWhitespace(int32_t character) {
  if (character == '\t' || character == '\n' || character == '\r') return true;
  const utf8proc_category_t category = utf8proc_category(character);
  return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
}

// Returns whether the tokenizer drops the character: a control character or
// similar. A character that utf8proc's tables do not know stays, because it may
// be newer than the tables.
bool IsDropped(int32_t character) {
  const utf8proc_category_t category = utf8proc_category(character);
  return character == 0xFFFD ||
         (category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO);
}

// BERT also counts ASCII symbols such as "$" as punctuation.
bool IsPunctuation(int32_t character) {
  if (character < 0x80) {
    return absl::ascii_ispunct(static_cast<unsigned char>(character));
  }
  const utf8proc_category_t category = utf8proc_category(character);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// The blocks that BERT was trained with.
bool IsChinese(int32_t character) {
  constexpr std::pair<int32_t, int32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
      {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
  };
  for (const auto& [first, last] : kBlocks) {
    if (first <= character && character <= last) return true;
  }
  return false;
}

void Append(int32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(character, bytes);
  text.append(reinterpret_cast<const char*>(bytes), length);
}

// Returns valid UTF-8 with white space as plain spaces, and with spaces around
// Chinese characters. This must precede the decomposition, which replaces some
// Chinese characters by others.
std::string Clean(absl::string_view text) {
  std::string clean;
  while (!text.empty()) {
    int32_t character;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         text.size(), &character);
    text.remove_prefix(std::max<utf8proc_ssize_t>(length, 1));
    if (length <= 0) continue;
    const bool chinese = IsChinese(character);
    if (IsWhitespace(character) || chinese) clean.push_back(' ');
    if (IsWhitespace(character) || IsDropped(character)) continue;
    Append(character, clean);
    if (chinese) clean.push_back(' ');
  }
  return clean;
}

// Separates letters from their accents.
std::vector<int32_t> Decompose(const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t length =
      utf8proc_decompose(bytes, text.size(), nullptr, 0, options);
  std::vector<int32_t> characters(std::max<utf8proc_ssize_t>(length, 0));
  utf8proc_decompose(bytes, text.size(), characters.data(), characters.size(),
                     options);
  return characters;
}

// Returns whether a character of valid UTF-8 starts with this byte.
bool StartsCharacter(char byte) { return (byte & 0xC0) != 0x80; }

}  // namespace

std::vector<std::string> SplitIntoWords(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const int32_t character : Decompose(Clean(text))) {
    if (utf8proc_category(character) == UTF8PROC_CATEGORY_MN) continue;
    const bool alone = IsPunctuation(character);
    if (character == ' ' || alone) finish_word();
    if (character != ' ') Append(utf8proc_tolower(character), word);
    if (alone) finish_word();
  }
  finish_word();
  return words;
}

absl::StatusOr<WordPieceTokenizer> WordPieceTokenizer::FromVocabulary(
    absl::string_view vocabulary) {
  WordPieceTokenizer tokenizer;
  absl::ConsumeSuffix(&vocabulary, "\n");
  int64_t& id = tokenizer.vocabulary_size_;
  for (absl::string_view piece : absl::StrSplit(vocabulary, '\n')) {
    absl::ConsumeSuffix(&piece, "\r");
    // A lone "##" is the word "##", not an empty continuation.
    const bool continues = piece.size() > kContinuationPrefix.size() &&
                           absl::ConsumePrefix(&piece, kContinuationPrefix);
    auto& pieces = continues ? tokenizer.continuations_ : tokenizer.starts_;
    if (piece.empty() || !pieces.emplace(piece, id++).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "vocabulary: a line is empty or repeated: \"", piece, "\", id ", id));
    }
  }
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
  const size_t ids_before = ids.size();
  const auto give_up = [&] {
    ids.resize(ids_before);
    ids.push_back(unknown_id_);
  };
  if (std::count_if(word.begin(), word.end(), StartsCharacter) >
      static_cast<int64_t>(kMaxWordCharacters)) {
    return give_up();
  }
  const auto* pieces = &starts_;
  while (!word.empty()) {
    size_t length = word.size();
    auto found = pieces->find(word);
    while (found == pieces->end() && length > 1) {
      do --length;
      while (length > 0 && !StartsCharacter(word[length]));
      found = pieces->find(word.substr(0, length));
    }
    if (found == pieces->end()) return give_up();
    ids.push_back(found->second);
    word.remove_prefix(length);
    pieces = &continuations_;
  }
}

}  // namespace djinn::examples
