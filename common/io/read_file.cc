#include "common/io/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace djinn {

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t max_bytes) {
  const auto unreadable = [] {
    return absl::FailedPreconditionError(std::strerror(errno));
  };
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable();
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat status;
  if (fstat(file, &status) != 0) return unreadable();
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError("not a regular file");
  }
  // One additional byte detects a file that is too large. The size that the
  // system reports may have changed by the time of the read.
  std::string contents(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t got = read(file, &contents[size], contents.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable();
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > max_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("larger than ", max_bytes, " bytes"));
  }
  contents.resize(size);
  return contents;
}

}  // namespace djinn
