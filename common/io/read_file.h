// Reads whole files: configurations, tokens, certificates.
#ifndef COMMON_IO_READ_FILE_H_
#define COMMON_IO_READ_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace djinn {

// Returns the contents of a regular file. Returns FailedPrecondition, without
// the path in its text, when the file cannot be read, is not regular (a pipe, a
// device) or has more than `max_bytes`. Never waits, and never reads more than
// that.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace djinn

#endif  // COMMON_IO_READ_FILE_H_
