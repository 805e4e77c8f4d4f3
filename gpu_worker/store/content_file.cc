#include "gpu_worker/store/content_file.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"

namespace djinn::worker {
namespace {

constexpr size_t kMaxWriteBytes = 4 << 20;

}  // namespace

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        write(fd, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool ReadAll(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

uint64_t CheckOf(const ContentFileHeader& header) {
  return HashContent(&header, offsetof(ContentFileHeader, check)).low;
}

ContentFileHeader MakeHeader(const std::string& tenant, const ContentHash& hash,
                             uint64_t size_bytes) {
  ContentFileHeader header{};
  std::memcpy(header.magic, kContentFileMagic, sizeof(kContentFileMagic));
  header.size_bytes = size_bytes;
  header.hash_high = hash.high;
  header.hash_low = hash.low;
  header.tenant_size = tenant.size();
  std::memcpy(header.tenant, tenant.data(), tenant.size());
  header.check = CheckOf(header);
  return header;
}

std::string FolderOf(const std::string& tenant) {
  return absl::BytesToHexString(Sha256(tenant).substr(0, 16));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(directory);
  return names;
}

}  // namespace djinn::worker
