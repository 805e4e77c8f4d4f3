#include "common/base/plain_text.h"

#include <utility>

namespace djinn {

void ReplaceControls(bool keep_lines, std::string* text) {
  const auto byte = [text](size_t i) {
    return i < text->size() ? static_cast<unsigned char>((*text)[i]) : 0xffu;
  };
  std::string plain;
  for (size_t i = 0; i < text->size(); ++i) {
    const bool of_ascii = byte(i) < 0x20 || byte(i) == 0x7f;
    const bool of_unicode =
        byte(i) == 0xc2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;
    const bool stays = byte(i) == '\n' && keep_lines;
    plain += (of_ascii && !stays) || of_unicode ? ' ' : (*text)[i];
    if (of_unicode) ++i;
  }
  *text = std::move(plain);
}

absl::string_view Cut(absl::string_view text, size_t most) {
  if (text.size() <= most) return text;
  // The first byte that is left out must begin a character.
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) {
    --most;
  }
  return text.substr(0, most);
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t size = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
    if (size == 0 || size > text.size()) return false;
    for (size_t i = 1; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      // The first byte limits the second one: longer forms than needed,
      // surrogates, and numbers above the last character's.
      const unsigned char least = i > 1           ? 0x80
                                  : first == 0xe0 ? 0xa0
                                  : first == 0xf0 ? 0x90
                                                  : 0x80;
      const unsigned char most = i > 1           ? 0xbf
                                 : first == 0xed ? 0x9f
                                 : first == 0xf4 ? 0x8f
                                                 : 0xbf;
      if (byte < least || byte > most) return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace djinn
