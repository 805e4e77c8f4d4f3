#include "tests/bench/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace djinn::bench {

std::string OwnProgram() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::string SiblingProgram(absl::string_view name) {
  return absl::StrCat(
      std::filesystem::path(OwnProgram()).parent_path().string(), "/", name);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::string& program, const std::vector<std::string>& arguments) {
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe2");
  }
  if (pipe2(output, O_CLOEXEC) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "pipe2");
    close(input[0]);
    close(input[1]);
    return status;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  if (error != 0) {
    close(input[1]);
    close(output[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", program));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, input[1], output[0]));
}

ChildProcess::~ChildProcess() {
  EndInput();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  close(output_);
}

absl::Status ChildProcess::WriteLine(const std::string& line) {
  const std::string bytes = line + "\n";
  // The line is shorter than what a pipe accepts at once.
  if (input_ < 0 || write(input_, bytes.data(), bytes.size()) !=
                        static_cast<ssize_t>(bytes.size())) {
    return absl::UnavailableError("a helper program takes no more input");
  }
  return absl::OkStatus();
}

void ChildProcess::EndInput() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

absl::StatusOr<std::string> ChildProcess::ReadLine() {
  while (true) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd waited = {.fd = output_, .events = POLLIN, .revents = 0};
    char bytes[512];
    const ssize_t count = poll(&waited, 1, /*timeout=*/10'000) > 0
                              ? read(output_, bytes, sizeof(bytes))
                              : 0;
    if (count <= 0) {
      return absl::UnavailableError("a helper program said nothing");
    }
    unread_.append(bytes, static_cast<size_t>(count));
  }
}

absl::Status ChildProcess::Wait() {
  int status = 0;
  const pid_t pid = waitpid(pid_, &status, 0);
  pid_ = 0;
  if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("a helper program failed");
}

}  // namespace djinn::bench
