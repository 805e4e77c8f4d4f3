#include "gpu_worker/supervisor/process_use.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {

std::optional<ProcessUse> ParseProcessUse(absl::string_view stat,
                                          double ticks) {
  // The second field is the name, in brackets; it may have any characters.
  const size_t name_end = stat.rfind(") ");
  if (name_end == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(name_end + 2), ' ');
  // The man page proc(5) counts from 1, and these fields are from the third on.
  constexpr size_t kFirst = 3;
  constexpr size_t kUser = 14 - kFirst;
  constexpr size_t kSystem = 15 - kFirst;
  constexpr size_t kThreads = 20 - kFirst;
  uint64_t user = 0;
  uint64_t system = 0;
  ProcessUse use;
  if (fields.size() <= kThreads || !absl::SimpleAtoi(fields[kUser], &user) ||
      !absl::SimpleAtoi(fields[kSystem], &system) ||
      !absl::SimpleAtoi(fields[kThreads], &use.threads)) {
    return std::nullopt;
  }
  use.cpu = absl::Seconds(static_cast<double>(user + system) / ticks);
  return use;
}

std::optional<ProcessUse> ReadProcessUse(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  char text[1024];
  const ssize_t size = read(file.get(), text, sizeof(text));
  if (size <= 0) return std::nullopt;
  return ParseProcessUse({text, static_cast<size_t>(size)},
                         static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace djinn::worker
