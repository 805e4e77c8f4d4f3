#include "tests/chaos/process_usage.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace djinn {

ProcessUsage UsageOf(pid_t pid) {
  ProcessUsage usage;
  const std::string folder = absl::StrCat("/proc/", pid);
  std::error_code error;
  for ([[maybe_unused]] const auto& file :
       std::filesystem::directory_iterator(folder + "/fd", error)) {
    ++usage.files;
  }
  std::ifstream status(folder + "/status");
  std::string line;
  while (std::getline(status, line)) {
    std::istringstream words(line);
    std::string key;
    int64_t value = 0;
    words >> key >> value;
    if (key == "Threads:") usage.threads = value;
    if (key == "VmRSS:") usage.resident_bytes = value << 10;
  }
  return usage;
}

std::ostream& operator<<(std::ostream& out, const ProcessUsage& usage) {
  return out << usage.files << " files, " << usage.threads << " threads, "
             << (usage.resident_bytes >> 20) << " MiB";
}

}  // namespace djinn
