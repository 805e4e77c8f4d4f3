// Files that hold secrets: tokens and private keys.
#ifndef COMMON_IO_SECRET_FILE_H_
#define COMMON_IO_SECRET_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn {

// FailedPrecondition (SECRET_FILE) naming the file and what is wrong: it cannot
// be read, is no regular file, or anybody may write to it. One that all users
// may read is only worth a warning in the log: mounted secrets look like that.
absl::Status CheckSecretFile(const std::string& path);

// The token in a file of at most 4,096 bytes: one printable ASCII word, white
// space around it left out. CheckSecretFile()'s errors, and likewise for other
// contents; no error repeats them.
absl::StatusOr<std::string> ReadToken(const std::string& path);

}  // namespace djinn

#endif  // COMMON_IO_SECRET_FILE_H_
