#include "coordinator/ctl/tar.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace djinn::ctl {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kChecksumAt = 148;
constexpr size_t kChecksumBytes = 8;

void Put(absl::string_view value, size_t at, std::string* header) {
  header->replace(at, value.size(), value.data(), value.size());
}

std::string HeaderOf(const ArchivedFile& file, absl::Time time) {
  std::string header(kBlock, '\0');
  Put(absl::string_view(file.name).substr(0, 100), 0, &header);
  Put("0000600", 100, &header);
  Put("0000000", 108, &header);  // owner
  Put("0000000", 116, &header);  // group
  Put(absl::StrFormat("%011o", file.text.size()), 124, &header);
  Put(absl::StrFormat("%011o", std::max<int64_t>(absl::ToUnixSeconds(time), 0)),
      136, &header);
  Put("0", 156, &header);  // a regular file
  Put(absl::string_view("ustar\00000", 8), 257, &header);
  // The checksum is computed as if it were spaces.
  Put(std::string(kChecksumBytes, ' '), kChecksumAt, &header);
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  Put(absl::StrFormat("%06o", sum), kChecksumAt, &header);
  header[kChecksumAt + 6] = '\0';
  return header;
}

// Returns 0, or the error's number.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

std::string TarOf(const std::vector<ArchivedFile>& files, absl::Time time) {
  std::string archive;
  for (const ArchivedFile& file : files) {
    archive += HeaderOf(file, time);
    archive += file.text;
    archive.append((kBlock - file.text.size() % kBlock) % kBlock, '\0');
  }
  // Two empty blocks end the archive.
  archive.append(2 * kBlock, '\0');
  return archive;
}

absl::Status WriteArchive(const std::string& path, absl::string_view archive,
                          bool replace) {
  const auto failed = [&path](int error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
  };
  // Another file takes the place of an existing one, so that neither its mode
  // nor a half of each is left.
  std::string written = replace ? path + ".XXXXXX" : path;
  const int fd = replace ? mkostemp(written.data(), O_CLOEXEC)
                         : open(path.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " exists: name another file, or say --force"));
  }
  if (fd < 0) return failed(errno);
  int error = WriteAll(fd, archive);
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && replace &&
      std::rename(written.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  unlink(written.c_str());
  return failed(error);
}

}  // namespace djinn::ctl
