
#include "coordinator/tables/errors.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn::coordinator {

absl::Status Unknown(absl::string_view what, absl::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, absl::StrCat(what, "_UNKNOWN"),
                   absl::StrCat("there is no \"", name, "\""));
}

absl::Status SessionUnknown(const std::string& id) {
  return Unknown("SESSION", log::ShortId(id));
}

absl::Status NotLeader(const std::string& leader) {
  return MakeError(
      absl::StatusCode::kUnavailable, "NOT_LEADER",
      leader.empty()
          ? "this coordinator does not lead, and knows of no leader"
          : absl::StrCat("this coordinator does not lead; ", leader, " does"),
      {{"leader", leader}});
}

}  // namespace djinn::coordinator
