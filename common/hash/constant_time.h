// Compares secrets.
#ifndef COMMON_HASH_CONSTANT_TIME_H_
#define COMMON_HASH_CONSTANT_TIME_H_

#include "absl/strings/string_view.h"

namespace djinn {

// Returns whether the tokens are equal, in a time that reveals neither where
// they differ nor how long the expected one is.
bool TokensEqual(absl::string_view a, absl::string_view b);

}  // namespace djinn

#endif  // COMMON_HASH_CONSTANT_TIME_H_
