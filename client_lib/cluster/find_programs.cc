#include "client_lib/cluster/find_programs.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"

namespace djinn {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

bool FindIn(const fs::path& coordinator_folder, const fs::path& worker_folder,
            ClusterPrograms* programs) {
  const fs::path coordinator = coordinator_folder / "djinn-coordinator";
  const fs::path worker = worker_folder / "djinn-worker";
  if (!IsProgram(coordinator) || !IsProgram(worker)) return false;
  *programs = {coordinator.string(), worker.string()};
  return true;
}

// Returns the folders of this code's file and of the running program.
std::vector<fs::path> OwnFolders() {
  std::vector<fs::path> folders;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&FindClusterPrograms), &info) != 0 &&
      info.dli_fname != nullptr) {
    std::error_code error;
    const fs::path file = fs::canonical(info.dli_fname, error);
    if (!error) folders.push_back(file.parent_path());
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(self.parent_path());
  return folders;
}

}  // namespace

absl::StatusOr<ClusterPrograms> FindClusterPrograms() {
  ClusterPrograms programs;
  std::vector<std::string> tried;
  const char* const folder = std::getenv("DJINN_BIN_DIR");
  if (folder != nullptr && *folder != '\0') {
    if (FindIn(folder, folder, &programs)) return programs;
    tried.push_back(folder);
  } else {
    for (const fs::path& own : OwnFolders()) {
      if (FindIn(own, own, &programs)) return programs;
      tried.push_back(own.string());
      // The root of a build tree contains the folders of both packages.
      for (fs::path root = own; root.has_relative_path();
           root = root.parent_path()) {
        if (FindIn(root / "coordinator", root / "gpu_worker", &programs)) {
          return programs;
        }
      }
    }
  }
  return MakeError(
      absl::StatusCode::kNotFound, "PROGRAM_MISSING",
      absl::StrCat("djinn-coordinator and djinn-worker are not in ",
                   absl::StrJoin(tried, ", "),
                   "; set DJINN_BIN_DIR to their folder"));
}

}  // namespace djinn
