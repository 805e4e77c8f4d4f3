#include "client_lib/api/environment.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

absl::StatusOr<bool> SwitchFromEnvironment(const char* name) {
  const std::string value = FromEnvironment(name);
  if (value.empty() || value == "0" || value == "1") return value == "1";
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_SWITCH",
                   absl::StrCat(name, " is \"", value, "\": expected 0 or 1"));
}

}  // namespace djinn
