// Parses the small JSON texts that describe a model.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_JSON_TEXT_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_JSON_TEXT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace djinn::examples {

// Parses `text`, which must hold one JSON object and nothing else but white
// space. Stricter than the library's own parse(), because a file that can be
// read in two ways should not be read at all: InvalidArgument also if a key
// appears twice in one object or values are nested deeper than
// kMaxJsonNesting. Does not throw.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text);

// Depth of the deepest value that is accepted; the outermost object is 0.
inline constexpr int kMaxJsonNesting = 16;

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_JSON_TEXT_H_
