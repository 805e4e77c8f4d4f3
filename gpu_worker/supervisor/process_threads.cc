#include "gpu_worker/supervisor/process_threads.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {

std::optional<uint64_t> ParseProcessThreads(absl::string_view stat) {
  // The second field is the name, in brackets; it may have any characters.
  const size_t name_end = stat.rfind(") ");
  if (name_end == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(name_end + 2), ' ');
  // The man page proc(5) counts from 1, and these fields are from the third on.
  constexpr size_t kThreads = 20 - 3;
  uint64_t threads = 0;
  if (fields.size() <= kThreads ||
      !absl::SimpleAtoi(fields[kThreads], &threads)) {
    return std::nullopt;
  }
  return threads;
}

std::optional<uint64_t> ReadProcessThreads(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  char text[1024];
  const ssize_t size = read(file.get(), text, sizeof(text));
  if (size <= 0) return std::nullopt;
  return ParseProcessThreads({text, static_cast<size_t>(size)});
}

}  // namespace djinn::worker
