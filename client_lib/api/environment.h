// Reads the variables with which a program's surroundings set its options.
#ifndef CLIENT_LIB_API_ENVIRONMENT_H_
#define CLIENT_LIB_API_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"

namespace djinn {

// Returns the variable's value; empty if it is not set.
std::string FromEnvironment(const char* name);

// Returns whether the variable is "1". "0" and an empty value mean false like a
// variable that is not set. Any other value is InvalidArgument (BAD_SWITCH).
absl::StatusOr<bool> SwitchFromEnvironment(const char* name);

}  // namespace djinn

#endif  // CLIENT_LIB_API_ENVIRONMENT_H_
