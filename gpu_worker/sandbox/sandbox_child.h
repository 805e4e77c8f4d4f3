// Children of a test's process in which sandboxes close, because nothing leaves
// them, and the files of a GPU that is not there.
#ifndef GPU_WORKER_SANDBOX_SANDBOX_CHILD_H_
#define GPU_WORKER_SANDBOX_SANDBOX_CHILD_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "gpu_worker/sandbox/file_broker.h"
#include "gpu_worker/sandbox/nvidia_profile.h"
#include "gpu_worker/sandbox/sandbox.h"
#include "gtest/gtest.h"

namespace djinn::worker {

inline constexpr int kEscaped = 40;
inline constexpr int kNotCounted = 41;
inline constexpr int kNoSandbox = 42;
// The kernel of this machine lacks Landlock.
inline constexpr int kNoLandlock = 43;

// Runs `act` in a child process, and returns the wait status.
inline int InChild(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) _exit(act());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

inline int ExitOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Has the call give `result`, a SECCOMP_RET_ value, in this process and in its
// children.
inline bool SetResultOfCall(uint32_t call, uint32_t result) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, result),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A folder with the files of one GPU's driver; its device files are plain ones.
class FakeGpu {
 public:
  static constexpr char kBusId[] = "0000:3B:00.0";

  FakeGpu() {
    root_ = testing::TempDir() + "/djinn-gpu-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    root_ = std::filesystem::canonical(root_);
    Write("proc/driver/nvidia/gpus/0000:3b:00.0/information",
          "Model: \t\t Fake\nDevice Minor: \t 7\nGPU Excluded:\t No\n");
    for (const char* const name :
         {"nvidiactl", "nvidia-uvm", "nvidia7", "nvidia0"}) {
      Write(std::string("dev/") + name, name);
    }
  }
  ~FakeGpu() { std::filesystem::remove_all(root_); }

  const std::string& root() const { return root_; }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(
        std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name)) << text;
  }

 private:
  std::string root_;
};

// Confines the broker in a child. Ends the child when that fails.
inline FileBroker ConfinedBroker(const FileRules& rules) {
  if (!PrepareSandbox(STDERR_FILENO).ok()) _exit(kNoSandbox);
  absl::StatusOr<FileBroker> broker = FileBroker::Fork();
  if (!broker.ok()) _exit(kNoSandbox);
  const absl::Status confined = broker->Confine(rules);
  if (absl::IsUnimplemented(confined)) _exit(kNoLandlock);
  if (!confined.ok()) _exit(kNoSandbox);
  return *std::move(broker);
}

// Runs `act` in a child's sandbox, as an executor on the GPU has it. Sets the
// broker's further rules.
inline int InGpuSandbox(const FakeGpu& gpu, const std::function<int()>& act,
                        SandboxOptions options = {},
                        const FileRules& more = {}) {
  return InChild([&] {
    absl::StatusOr<FileRules> rules = FilesOfGpu(FakeGpu::kBusId, gpu.root());
    if (!rules.ok()) return kNoSandbox;
    rules->libraries.insert(rules->libraries.end(), more.libraries.begin(),
                            more.libraries.end());
    const FileBroker broker = ConfinedBroker(*rules);
    options.files = &broker;
    options.nvidia = true;
    return EnterSandbox(options).ok() ? act() : kNoSandbox;
  });
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_SANDBOX_SANDBOX_CHILD_H_
