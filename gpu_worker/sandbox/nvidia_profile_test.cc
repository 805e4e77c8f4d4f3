#include "gpu_worker/sandbox/nvidia_profile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gpu_worker/sandbox/sandbox_child.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(FilesOfGpuTest, AreThoseOfTheGpuAndOfLoadedLibraries) {
  const FakeGpu gpu;
  const auto rules = FilesOfGpu(FakeGpu::kBusId, gpu.root());
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(rules->devices,
              ElementsAre(gpu.Path("dev/nvidiactl"), gpu.Path("dev/nvidia-uvm"),
                          gpu.Path("dev/nvidia7")));
  Dl_info info = {};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getenv), &info), 0);
  const std::filesystem::path libc = std::filesystem::canonical(info.dli_fname);
  EXPECT_THAT(rules->libraries, Contains(libc.parent_path().native()));
  EXPECT_THAT(rules->libraries, Not(Contains("/")));
  EXPECT_THAT(rules->readable, Not(Contains("/proc")));
}

TEST(FilesOfGpuTest, FoldersOfLibrariesAreAbsoluteAndNotTheRoot) {
  const FakeGpu gpu;
  gpu.Write("lib/one.so", "");
  const char* const given = getenv("LD_LIBRARY_PATH");
  const std::string before = given == nullptr ? "" : given;
  const std::string folders =
      "/:/usr:/usr/..:gpu_worker::" + gpu.Path("lib/") + ":" + before;
  ASSERT_EQ(setenv("LD_LIBRARY_PATH", folders.c_str(), 1), 0);
  const auto rules = FilesOfGpu(FakeGpu::kBusId, gpu.root());
  if (given == nullptr) {
    unsetenv("LD_LIBRARY_PATH");
  } else {
    setenv("LD_LIBRARY_PATH", before.c_str(), 1);
  }
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(rules->libraries, Contains(gpu.Path("lib")));
  EXPECT_THAT(rules->libraries,
              Each(AllOf(StartsWith("/"), Not(EndsWith("/")))));
}

TEST(FilesOfGpuTest, NamesWhatIsMissing) {
  const FakeGpu gpu;
  const auto other = FilesOfGpu("0000:3C:00.0", gpu.root());
  EXPECT_EQ(ErrorReason(other.status()), "NO_SANDBOX");
  EXPECT_THAT(other.status().message(),
              HasSubstr("gpus/0000:3c:00.0/information"));
  std::filesystem::remove(gpu.Path("dev/nvidia-uvm"));
  const auto lacking = FilesOfGpu(FakeGpu::kBusId, gpu.root());
  EXPECT_THAT(lacking.status().message(),
              HasSubstr("dev/nvidia-uvm does not exist"));
}

// Runs `act` in the sandbox of an executor on the GPU, and expects 0.
void ExpectInGpuSandbox(const FakeGpu& gpu, const std::function<int()>& act,
                        const SandboxOptions& options = {},
                        const FileRules& more = {}) {
  const int status = InGpuSandbox(gpu, act, options, more);
  if (ExitOf(status) == kNoLandlock) {
    GTEST_SKIP() << "this machine's kernel has no Landlock";
  }
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(GpuSandboxTest, DeviceFilesOfTheGpuOpen) {
  const FakeGpu gpu;
  ExpectInGpuSandbox(gpu, [&] {
    char name[16] = {};
    const int file = open(gpu.Path("dev/nvidia7").c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0 || read(file, name, sizeof(name)) != 7) return 1;
    if ((fcntl(file, F_GETFD) & FD_CLOEXEC) == 0) return 2;
    struct stat about = {};
    if (stat(gpu.Path("dev/nvidiactl").c_str(), &about) != 0) return 3;
    if (about.st_size != 9) return 4;
    if (RefusedSystemCalls() != 0) return kNotCounted;
    // Another tenant's GPU, and one that is there for nobody.
    errno = 0;
    if (open(gpu.Path("dev/nvidia0").c_str(), O_RDWR) >= 0) return kEscaped;
    if (errno != EACCES || RefusedSystemCalls() != 1) return kNotCounted;
    if (stat(gpu.Path("dev/nvidia0").c_str(), &about) == 0) return kEscaped;
    return RefusedSystemCalls() == 2 ? 0 : kNotCounted;
  });
}

TEST(GpuSandboxTest, LibrariesLoadLate) {
  const FakeGpu gpu;
  const std::filesystem::path library =
      std::filesystem::canonical("gpu_worker/sandbox/liblate.so");
  FileRules more;
  more.libraries = {library.parent_path()};
  ExpectInGpuSandbox(
      gpu,
      [&] {
        void* const loaded = dlopen(library.c_str(), RTLD_NOW);
        if (loaded == nullptr) return 1;
        auto* const late =
            reinterpret_cast<int (*)()>(dlsym(loaded, "djinn_late"));
        return late != nullptr && late() == 17 ? 0 : 2;
      },
      {}, more);
}

TEST(GpuSandboxTest, LibrariesElsewhereDoNot) {
  const FakeGpu gpu;
  std::filesystem::create_directories(gpu.Path("elsewhere"));
  const std::string copy = gpu.Path("elsewhere/liblate.so");
  std::filesystem::copy_file("gpu_worker/sandbox/liblate.so", copy);
  ExpectInGpuSandbox(gpu, [&] {
    if (dlopen(copy.c_str(), RTLD_NOW) != nullptr) return kEscaped;
    return RefusedSystemCalls() == 1 ? 0 : kNotCounted;
  });
}

TEST(GpuSandboxTest, FilesThatLibrariesReadAreReadable) {
  const FakeGpu gpu;
  ExpectInGpuSandbox(gpu, [] {
    for (const char* const path :
         {"/proc/cpuinfo", "/proc/meminfo", "/etc/ld.so.cache"}) {
      const int file = open(path, O_RDONLY);
      char byte = 0;
      if (file < 0 || read(file, &byte, 1) != 1) return 1;
      close(file);
    }
    if (sysconf(_SC_NPROCESSORS_ONLN) < 1) return 2;
    // The C library asks about a descriptor.
    struct stat about = {};
    if (fstat(STDERR_FILENO, &about) != 0) return 3;
    return RefusedSystemCalls() == 0 ? 0 : kNotCounted;
  });
}

// A shared content is an anonymous file, of which an executor has a descriptor
// that cannot write. Opening it again would give one that can. Any descriptor
// stands for it here.
TEST(GpuSandboxTest, DescriptorsCannotBeOpenedAgain) {
  const FakeGpu gpu;
  ExpectInGpuSandbox(gpu, [] {
    const int file = STDERR_FILENO;
    for (const std::string& path :
         {"/proc/self/fd/" + std::to_string(file),
          "/proc/thread-self/fd/" + std::to_string(file),
          "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file),
          "/dev/fd/" + std::to_string(file)}) {
      if (open(path.c_str(), O_RDWR) >= 0) return kEscaped;
      if (errno != EACCES) return 2;
    }
    return 0;
  });
}

// A command that the filter lets through fails for its descriptor; one that it
// refuses fails as an unknown one.
int ErrorOfCommand(uint32_t command) {
  errno = 0;
  ioctl(-1, command, nullptr);
  return errno;
}

TEST(GpuSandboxTest, CommandsOfTheDriverPassAndNoOthers) {
  const FakeGpu gpu;
  ExpectInGpuSandbox(gpu, [] {
    for (const uint32_t command : kNvidiaCommands) {
      // As the driver is called: both directions, and a size.
      if (ErrorOfCommand(command | 3U << 30 | 32U << 16) != EBADF) return 1;
    }
    for (const uint32_t command : kUvmCommands) {
      if (ErrorOfCommand(command) != EBADF) return 2;
    }
    if (ErrorOfCommand(FIONREAD) != EBADF) return 3;
    for (const uint32_t command :
         {62U, 63U, 70U, 0U, 1U, static_cast<uint32_t>(TIOCSTI),
          static_cast<uint32_t>(FIOASYNC),
          // Exports memory to other devices.
          kNvidiaType | (200 + 17) | 3U << 30, kNvidiaType | 0x28,
          static_cast<uint32_t>('G' << 8) | 0x2a}) {
      if (ErrorOfCommand(command) != ENOTTY) return kEscaped;
    }
    return 0;
  });
}

TEST(GpuSandboxTest, CommandsNeedTheProfile) {
  const int status = InChild([] {
    if (!PrepareSandbox(STDERR_FILENO).ok() || !EnterSandbox({}).ok()) {
      return kNoSandbox;
    }
    for (const uint32_t command : {kNvidiaCommands[0], kUvmCommands[0]}) {
      if (ErrorOfCommand(command) != ENOTTY) return kEscaped;
    }
    return 0;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(GpuSandboxTest, AddressesAreFreeButMemoryIsLimited) {
  const FakeGpu gpu;
  SandboxOptions options;
  options.added_data = 256 << 20;
  ExpectInGpuSandbox(
      gpu,
      [] {
        constexpr size_t kMuch = size_t{1} << 40;
        if (mmap(nullptr, kMuch, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                 0) == MAP_FAILED) {
          return 1;
        }
        return mmap(nullptr, 512 << 20, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
                       errno == ENOMEM
                   ? 0
                   : kEscaped;
      },
      options);
}

}  // namespace
}  // namespace djinn::worker
