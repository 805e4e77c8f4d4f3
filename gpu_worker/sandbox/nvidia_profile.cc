#include "gpu_worker/sandbox/nvidia_profile.h"

#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

namespace fs = std::filesystem;

absl::Status Missing(const std::string& what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "NO_SANDBOX",
      absl::StrCat("a tenant's process cannot be closed around its GPU: ",
                   what));
}

// Returns N of the GPU's /dev/nvidiaN.
absl::StatusOr<int> MinorOf(const std::string& bus_id,
                            const std::string& root) {
  const std::string path =
      absl::StrCat(root, "/proc/driver/nvidia/gpus/",
                   absl::AsciiStrToLower(bus_id), "/information");
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view value = line;
    int minor = 0;
    if (absl::ConsumePrefix(&value, "Device Minor:") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(value), &minor) &&
        minor >= 0) {
      return minor;
    }
  }
  return Missing(absl::StrCat(path, " tells no \"Device Minor\""));
}

// Adds the folder by its own name and by that without links.
void AddFolder(const fs::path& folder, std::set<std::string>* folders) {
  if (!folder.is_absolute()) return;
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return;
  // Many systems have both names for one folder, and the loader uses either.
  const fs::path other(std::string(absl::StripPrefix(real.native(), "/usr")));
  for (const fs::path& name : {folder.lexically_normal(), real, other}) {
    // The broker compares names without a final slash.
    const fs::path plain = name.has_filename() ? name : name.parent_path();
    // A rule for the root would hold for everything.
    if (!plain.is_absolute() || !plain.has_relative_path()) continue;
    // The folder without "/usr" may be another one.
    if (!fs::equivalent(plain, real, error)) continue;
    folders->insert(plain);
  }
}

int AddFolderOfLibrary(dl_phdr_info* info, size_t /*size*/, void* folders) {
  // The program itself has no name.
  const fs::path path = info->dlpi_name;
  if (path.has_parent_path()) {
    AddFolder(path.parent_path(), static_cast<std::set<std::string>*>(folders));
  }
  return 0;
}

std::set<std::string> LibraryFolders() {
  std::set<std::string> folders;
  dl_iterate_phdr(AddFolderOfLibrary, &folders);
  const char* const configured = std::getenv("LD_LIBRARY_PATH");
  for (const absl::string_view folder :
       absl::StrSplit(configured == nullptr ? "" : configured, ':')) {
    AddFolder(std::string(folder), &folders);
  }
  return folders;
}

}  // namespace

absl::StatusOr<FileRules> FilesOfGpu(const std::string& bus_id,
                                     const std::string& root) {
  DJINN_ASSIGN_OR_RETURN(const int minor, MinorOf(bus_id, root));
  FileRules rules;
  for (const std::string& name :
       {std::string("nvidiactl"), std::string("nvidia-uvm"),
        absl::StrCat("nvidia", minor)}) {
    rules.devices.push_back(absl::StrCat(root, "/dev/", name));
    std::error_code ignored;
    if (!fs::exists(rules.devices.back(), ignored)) {
      return Missing(absl::StrCat(rules.devices.back(), " does not exist"));
    }
  }
  rules.readable = {absl::StrCat(root, "/proc/driver/nvidia"),
                    // Files that the C library, OpenMP and the driver read to
                    // learn about the machine and its devices.
                    "/proc/cpuinfo", "/proc/devices", "/proc/meminfo",
                    "/proc/modules", "/proc/stat",
                    "/proc/sys/vm/overcommit_memory", "/sys/devices/system",
                    "/etc/ld.so.cache"};
  const std::set<std::string> folders = LibraryFolders();
  rules.libraries.assign(folders.begin(), folders.end());
  return rules;
}

}  // namespace djinn::worker
