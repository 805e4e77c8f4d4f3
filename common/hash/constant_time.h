// Comparing secrets.
#ifndef COMMON_HASH_CONSTANT_TIME_H_
#define COMMON_HASH_CONSTANT_TIME_H_

#include "absl/strings/string_view.h"

namespace djinn {

// Compares in a time that tells neither where the two differ nor how long the
// expected one is.
bool TokensEqual(absl::string_view a, absl::string_view b);

}  // namespace djinn

#endif  // COMMON_HASH_CONSTANT_TIME_H_
