// The form of a file in which a disk store (disk_store.h) keeps a content, and
// what reads and writes such files.
#ifndef GPU_WORKER_STORE_CONTENT_FILE_H_
#define GPU_WORKER_STORE_CONTENT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/hash/hash.h"

namespace djinn::worker {

// Precedes the bytes in a file and identifies the content.
struct ContentFileHeader {
  char magic[16];
  uint64_t size_bytes;
  uint64_t hash_high;
  uint64_t hash_low;
  uint64_t tenant_size;
  char tenant[4040];
  // CheckOf() the header.
  uint64_t check;
};
static_assert(sizeof(ContentFileHeader) == 4096);

inline constexpr char kContentFileMagic[16] = "djinn content 2";
inline constexpr char kFormerContentFileMagic[16] = "djinn content 1";

// Returns the XXH3 of all fields before `check`.
uint64_t CheckOf(const ContentFileHeader& header);
// `tenant` must fit into the header.
ContentFileHeader MakeHeader(const std::string& tenant, const ContentHash& hash,
                             uint64_t size_bytes);
// Returns the name of the tenant's folder, which is a hash: the tenant's own
// need not be a valid one.
std::string FolderOf(const std::string& tenant);
// Returns what is in the folder; nothing if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

// Return false, and leave the reason in errno, when the system refuses.
// ReadAll() leaves 0 there when the file ends too early.
bool WriteAll(int fd, absl::string_view bytes);
bool ReadAll(int fd, char* to, size_t size);

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_FILE_H_
