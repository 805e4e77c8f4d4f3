#include "client_lib/cluster/child_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client_lib/session/model/wait.h"
#include "common/base/error.h"

extern char** environ;

namespace djinn {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(5);
constexpr size_t kTailBytes = 2000;

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

ChildProcess::~ChildProcess() { Stop(absl::ZeroDuration()); }

absl::Status ChildProcess::Start(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 int lifeline, const std::string& log_path) {
  log_path_ = log_path;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_adddup2(&files, lifeline, kLifelineFd);
  posix_spawn_file_actions_addclosefrom_np(&files, kLifelineFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                            POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&pid_, program.c_str(), &files, &attributes,
                                argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    pid_ = 0;
    return MakeError(
        absl::StatusCode::kInternal, "CANNOT_START",
        absl::StrCat("cannot start ", program, ": ", std::strerror(error)));
  }
  running_ = true;
  return absl::OkStatus();
}

bool ChildProcess::Running() {
  if (!running_) return false;
  const pid_t ended = waitpid(pid_, &wait_status_, WNOHANG);
  // An error means that other code has reaped the child.
  if (ended == pid_ || (ended < 0 && errno == ECHILD)) running_ = false;
  return running_;
}

void ChildProcess::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

bool ChildProcess::WaitForExit(absl::Duration timeout) {
  const Deadline deadline(timeout);
  while (Running()) {
    if (deadline.passed()) return false;
    absl::SleepFor(kPollInterval);
  }
  return true;
}

void ChildProcess::Stop(absl::Duration grace) {
  Signal(SIGTERM);
  if (WaitForExit(grace)) return;
  Signal(SIGKILL);
  WaitForExit(absl::InfiniteDuration());
}

std::string ChildProcess::DescribeEnd() const {
  if (WIFSIGNALED(wait_status_)) {
    return absl::StrCat("was ended by signal ", WTERMSIG(wait_status_));
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(wait_status_));
}

std::string ChildProcess::LogTail() const {
  std::ifstream file(log_path_);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  if (all.size() <= kTailBytes) return all;
  const size_t line = all.find('\n', all.size() - kTailBytes);
  return line == std::string::npos ? all.substr(all.size() - kTailBytes)
                                   : all.substr(line + 1);
}

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
