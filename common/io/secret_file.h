// Reads files that hold secrets: tokens and private keys.
#ifndef COMMON_IO_SECRET_FILE_H_
#define COMMON_IO_SECRET_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn {

// Returns FailedPrecondition (SECRET_FILE), which names the file and the fault:
// it cannot be read, is not a regular file, or all users may write to it. A
// file that all users may read only causes a warning in the log, because
// mounted secrets look like that.
absl::Status CheckSecretFile(const std::string& path);

// Returns the token in a file of at most 4,096 bytes: one printable ASCII word,
// without the white space around it. Returns CheckSecretFile()'s errors, and
// the same error for other contents. No error repeats the contents.
absl::StatusOr<std::string> ReadToken(const std::string& path);

}  // namespace djinn

#endif  // COMMON_IO_SECRET_FILE_H_
