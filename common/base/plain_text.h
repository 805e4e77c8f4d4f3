// Makes a peer's text fit for an operator's terminal and for a bounded record.
#ifndef COMMON_BASE_PLAIN_TEXT_H_
#define COMMON_BASE_PLAIN_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace djinn {

// Replaces every control character, of ASCII or Unicode, by a space, because a
// terminal would obey it. Line feeds stay if
// `keep_lines` is set.
void ReplaceControls(bool keep_lines, std::string* text);

// Returns the beginning of a text of UTF-8, as the parser of messages demands
// of every string: at most `most` bytes, without a part of a character.
absl::string_view Cut(absl::string_view text, size_t most);

// Returns whether the text is UTF-8: the shortest form of each character, and
// no surrogates.
bool IsUtf8(absl::string_view text);

}  // namespace djinn

#endif  // COMMON_BASE_PLAIN_TEXT_H_
