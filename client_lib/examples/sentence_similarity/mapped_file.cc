#include "client_lib/examples/sentence_similarity/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace djinn::examples {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  // The mapping keeps the file alive on its own.
  absl::Cleanup close_descriptor = [descriptor] { close(descriptor); };

  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot examine ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  if (info.st_size == 0) return MappedFile({});  // mmap refuses empty files.

  const size_t size = static_cast<size_t>(info.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (start == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  }
  return MappedFile({static_cast<const std::byte*>(start), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);  // `other` unmaps what was held here.
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace djinn::examples
