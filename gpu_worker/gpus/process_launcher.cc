#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/gpus/gpu_supervisor.h"
#include "httplib.h"

extern char** environ;

namespace djinn::worker {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES=";
// The reading end of the pipe whose end tells a worker that the supervisor is
// gone.
constexpr int kLifelineFd = 3;
constexpr auto kHealthTimeout = std::chrono::seconds(1);

absl::Status Failed(absl::string_view what, int error) {
  return MakeError(absl::StatusCode::kInternal, "CANNOT_LAUNCH",
                   absl::StrCat(what, ": ", std::strerror(error)));
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

class ProcessLauncher : public GpuLauncher {
 public:
  static absl::StatusOr<std::unique_ptr<ProcessLauncher>> Make(
      GpuProcessOptions options) {
    auto launcher = absl::WrapUnique(new ProcessLauncher(std::move(options)));
    std::string folder =
        (std::filesystem::temp_directory_path() / "djinn-gpus-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return Failed(folder, errno);
    launcher->folder_ = folder;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe", errno);
    launcher->lifeline_ = Descriptor(ends[0]);
    launcher->held_ = Descriptor(ends[1]);
    return launcher;
  }
  ~ProcessLauncher() override {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  absl::StatusOr<pid_t> Launch(int index) override {
    std::error_code ignored;
    for (const std::string& file : {AddressFile(index), HealthFile(index)}) {
      std::filesystem::remove(file, ignored);
    }
    char program[PATH_MAX];
    const ssize_t length =
        readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length < 0) return Failed("/proc/self/exe", errno);
    program[length] = '\0';
    const std::vector<std::string> arguments = {
        program,
        absl::StrCat("--config=", options_.config_path),
        absl::StrCat("--gpu=", index),
        absl::StrCat("--gpus=", options_.uuids.size()),
        absl::StrCat("--gpu_uuid=", options_.uuids[index]),
        absl::StrCat("--address_file=", AddressFile(index)),
        absl::StrCat("--monitoring_address_file=", HealthFile(index)),
        absl::StrCat("--lifeline_fd=", kLifelineFd)};
    std::vector<std::string> environment = {
        absl::StrCat(kVisible, options_.uuids[index])};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      // Only this process tells the service manager that it serves.
      if (absl::StartsWith(*entry, kVisible) ||
          absl::StartsWith(*entry, "NOTIFY_SOCKET=")) {
        continue;
      }
      environment.push_back(*entry);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const absl::Cleanup free = [&] {
      posix_spawn_file_actions_destroy(&actions);
    };
    // A copy loses the flag that would close it, unless it is the same number.
    const Descriptor copy(
        fcntl(lifeline_.get(), F_DUPFD_CLOEXEC, kLifelineFd + 1));
    if (copy.get() < 0) return Failed("fcntl", errno);
    posix_spawn_file_actions_adddup2(&actions, copy.get(), kLifelineFd);
    pid_t pid = 0;
    const int error =
        posix_spawn(&pid, program, &actions, nullptr,
                    Pointers(arguments).data(), Pointers(environment).data());
    if (error != 0) return Failed("posix_spawn", error);
    return pid;
  }

  void Signal(pid_t pid, int signal) override { kill(pid, signal); }

  std::optional<std::string> Reap(pid_t pid) override {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0) return std::nullopt;
    if (ended < 0) return absl::StrCat("waitpid: ", std::strerror(errno));
    if (WIFSIGNALED(status)) {
      return absl::StrCat("signal ", WTERMSIG(status));
    }
    return absl::StrCat("exit status ", WEXITSTATUS(status));
  }

  std::string Address(int index) override {
    return FirstLine(AddressFile(index));
  }

  std::string NotReady(int index) override {
    if (Address(index).empty()) return "it starts";
    const std::string address = FirstLine(HealthFile(index));
    if (address.empty()) return "it has no port for its health";
    httplib::Client client("http://" + address);
    client.set_connection_timeout(kHealthTimeout);
    client.set_read_timeout(kHealthTimeout);
    client.set_write_timeout(kHealthTimeout);
    const httplib::Result answer = client.Get("/readyz");
    if (!answer) {
      return absl::StrCat("it does not answer: ",
                          httplib::to_string(answer.error()));
    }
    if (answer->status == 200) return "";
    // One line for each condition that fails.
    return absl::StrReplaceAll(answer->body,
                               {{"\nnot ready\n", ""}, {"\n", ", "}});
  }

 private:
  explicit ProcessLauncher(GpuProcessOptions options)
      : options_(std::move(options)) {}

  static std::vector<char*> Pointers(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) {
      pointers.push_back(const_cast<char*>(text.c_str()));
    }
    pointers.push_back(nullptr);
    return pointers;
  }
  std::string AddressFile(int index) const {
    return absl::StrCat(folder_, "/", index, ".address");
  }
  std::string HealthFile(int index) const {
    return absl::StrCat(folder_, "/", index, ".monitoring");
  }

  const GpuProcessOptions options_;
  // The folder of the files with the workers' addresses.
  std::string folder_;
  // The pipe's reading and writing end. This process alone has the latter.
  Descriptor lifeline_, held_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLauncher>> MakeGpuProcessLauncher(
    GpuProcessOptions options) {
  return ProcessLauncher::Make(std::move(options));
}

}  // namespace djinn::worker
