#include "coordinator/ctl/tar.h"

#include <algorithm>
#include <cstddef>

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

}  // namespace djinn::ctl
