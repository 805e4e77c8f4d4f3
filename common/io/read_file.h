// Files that people write and programs read whole: configurations, tokens,
// certificates.
#ifndef COMMON_IO_READ_FILE_H_
#define COMMON_IO_READ_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace djinn {

// What a regular file holds. FailedPrecondition, without the path in its text,
// when it cannot be read, is something else (a pipe, a device) or holds more
// than `max_bytes`. Never waits and never reads more than that.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace djinn

#endif  // COMMON_IO_READ_FILE_H_
