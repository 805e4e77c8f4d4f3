// Splits text into words the way uncased BERT models were trained on.
//
// This is the first half of their tokenizer; wordpiece.h does the second.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BASIC_TOKENIZER_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BASIC_TOKENIZER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace djinn::examples {

// Returns the words of UTF-8 `text`, in order:
//  - control, formatting and private characters are dropped, and so are bytes
//    that are not valid UTF-8;
//  - accents are removed ("é" becomes "e") and letters made lower case;
//  - white space separates words and disappears;
//  - each punctuation mark and each Chinese character is a word of its own.
//
// The result is that of Hugging Face's tokenizers, but for a few hundred
// characters of rare scripts, which their older Unicode tables do not know.
//
// Every string is valid text here, so nothing fails. Takes time and memory in
// proportion to the length of `text`.
std::vector<std::string> SplitIntoWords(absl::string_view text);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BASIC_TOKENIZER_H_
