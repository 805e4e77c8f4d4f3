// A whole file, mapped read-only into memory.
//
// Weights are read this way because a mapping costs nothing until a page is
// touched, and several processes on one machine then share one copy of the
// file in the page cache.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MAPPED_FILE_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MAPPED_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace djinn::examples {

// Owns one mapping. It lives until the object dies, and so do all spans taken
// from bytes(); moving the object keeps them valid. The file must not be
// shortened while it is mapped: the operating system answers a read beyond the
// new end with SIGBUS, which no check here can prevent.
//
// Thread-compatible; bytes() may be read from any number of threads.
class MappedFile {
 public:
  // NotFound or PermissionDenied as the operating system says;
  // InvalidArgument if `path` is not a regular file. An empty file gives an
  // empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  absl::Span<const std::byte> bytes_;
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MAPPED_FILE_H_
