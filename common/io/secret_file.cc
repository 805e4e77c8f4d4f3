#include "common/io/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/io/read_file.h"
#include "common/log/log.h"

namespace djinn {
namespace {

constexpr size_t kMaxTokenFileBytes = 4096;

absl::Status Refused(absl::string_view message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "SECRET_FILE",
                   message);
}

}  // namespace

absl::Status CheckSecretFile(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || access(path.c_str(), R_OK) != 0) {
    return Refused(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    return Refused(absl::StrCat("cannot read ", path, ": not a regular file"));
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    return Refused(
        absl::StrCat(path, " can be written by every user: chmod 600 ", path));
  }
  if ((status.st_mode & S_IROTH) != 0) {
    log::Warning("a secret can be read by every user: chmod 600",
                 {{"file", path}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  DJINN_RETURN_IF_ERROR(CheckSecretFile(path));
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTokenFileBytes);
  if (!text.ok()) {
    return Refused(
        absl::StrCat("cannot read ", path, ": ", text.status().message()));
  }
  std::string token(absl::StripAsciiWhitespace(*text));
  if (token.empty() ||
      !std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return Refused(absl::StrCat(path, " must hold one printable ASCII word"));
  }
  return token;
}

}  // namespace djinn
