#include "client_lib/examples/sentence_similarity/basic_tokenizer.h"

#include <utf8proc.h>

#include <cstdint>

#include "absl/strings/ascii.h"

namespace djinn::examples {
namespace {

constexpr int32_t kReplacementCharacter = 0xFFFD;

bool IsWhitespace(int32_t character) {
  switch (character) {
    case '\t':
    case '\n':
    case '\r':
      return true;
    default:
      break;
  }
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

// Asked after IsWhitespace(): tabs and line ends are control characters too.
// Characters that are not assigned stay: they may be newer than our tables.
bool IsDropped(int32_t character) {
  if (character == kReplacementCharacter) return true;
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
      return true;
    default:
      return false;
  }
}

// BERT also counts as punctuation what ASCII has besides letters and digits,
// such as "$" and "+", which Unicode calls symbols.
bool IsPunctuation(int32_t character) {
  if (character < 0x80) {
    return absl::ascii_ispunct(static_cast<unsigned char>(character));
  }
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

// The blocks BERT was trained with. Japanese kana and Korean hangul are not
// among them: those are written with spaces or are split by WordPiece.
bool IsChinese(int32_t character) {
  constexpr struct {
    int32_t first, last;
  } kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
      {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
  };
  for (const auto& block : kBlocks) {
    if (block.first <= character && character <= block.last) return true;
  }
  return false;
}

void Append(int32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(character, bytes);
  text.append(reinterpret_cast<const char*>(bytes), length);
}

// First pass: valid UTF-8 of the characters that count, white space as plain
// spaces, and spaces around Chinese characters. Those are told apart before
// accents are removed, because that also replaces some of them by others.
std::string Clean(absl::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    int32_t character;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         text.size(), &character);
    if (length <= 0) {
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(length);
    if (IsWhitespace(character)) {
      clean.push_back(' ');
    } else if (IsDropped(character)) {
      continue;
    } else if (IsChinese(character)) {
      clean.push_back(' ');
      Append(character, clean);
      clean.push_back(' ');
    } else {
      Append(character, clean);
    }
  }
  return clean;
}

// Canonical decomposition: letters and their accents become characters apart.
std::vector<int32_t> Decompose(const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  std::vector<int32_t> characters(text.size());
  utf8proc_ssize_t length = utf8proc_decompose(
      bytes, text.size(), characters.data(), characters.size(), options);
  if (length > static_cast<utf8proc_ssize_t>(characters.size())) {
    // Rare: a character may fall into more parts than it has bytes.
    characters.resize(length);
    length = utf8proc_decompose(bytes, text.size(), characters.data(),
                                characters.size(), options);
  }
  characters.resize(length < 0 ? 0 : length);
  return characters;
}

}  // namespace

std::vector<std::string> SplitIntoWords(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const int32_t character : Decompose(Clean(text))) {
    if (character == ' ') {
      finish_word();
    } else if (utf8proc_category(character) == UTF8PROC_CATEGORY_MN) {
      continue;  // An accent.
    } else if (IsPunctuation(character)) {
      finish_word();
      Append(character, word);
      finish_word();
    } else {
      Append(utf8proc_tolower(character), word);
    }
  }
  finish_word();
  return words;
}

}  // namespace djinn::examples
